"""The examples before the change: confluent-kafka alone."""
