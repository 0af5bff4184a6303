"""The drop-in for confluent-kafka's consumers."""
