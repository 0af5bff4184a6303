"""Which partitions a worker has, and where it begins."""
