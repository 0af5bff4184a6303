"""What stands in Kafka: names of topics, headers, keys and values."""
