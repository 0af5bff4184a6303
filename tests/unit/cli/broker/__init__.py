"""`reconsume broker`."""
