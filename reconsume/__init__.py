"""RocketMQ's retry semantics for consumers of Apache Kafka."""

__version__ = "0.1.0"
