"""The partitions of a worker, and where it starts them."""
