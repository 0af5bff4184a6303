"""PushConsumer and delayed messages on a real Kafka."""
