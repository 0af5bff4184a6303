"""The contents of Kafka: names of topics, headers, keys and values."""
