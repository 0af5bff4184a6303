"""The scheduler: moves due records from the delay topics to retry and dead-letter topics."""
