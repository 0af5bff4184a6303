"""Kafka for tests: local, secured, shared between processes, with faults."""
