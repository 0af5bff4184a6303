"""Retries, delayed messages and dead letters for consumers of Apache Kafka."""

__version__ = "0.1.0"
