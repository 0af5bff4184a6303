"""When a record is due, what a retry policy says, and what becomes of a failed message."""
