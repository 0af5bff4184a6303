"""Names and records in Kafka: topics, headers, keys and values."""
