"""Workarounds for defects of librdkafka and confluent-kafka, on a real Kafka."""
