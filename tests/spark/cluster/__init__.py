"""Spark in several processes: executors, pods, Connect, rights."""
