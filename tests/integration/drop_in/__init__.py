"""The drop-in consumers on a real Kafka."""
