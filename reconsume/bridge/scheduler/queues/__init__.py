"""The records that a worker has read ahead, ordered by due time."""
