"""Rules: when a record is due, retry policies, and where a failed message goes."""
