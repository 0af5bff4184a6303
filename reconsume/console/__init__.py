"""`reconsume console`: waiting records and dead letters in a browser, and resends."""
