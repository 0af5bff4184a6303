"""Writing due records, and what brokers refuse."""
