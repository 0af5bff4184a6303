"""The records that a run reads, and their attempts."""
