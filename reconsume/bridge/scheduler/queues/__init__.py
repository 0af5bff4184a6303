"""What a worker has read ahead, ordered by when it is due."""
