"""Workarounds for defects of librdkafka and confluent-kafka, one file for each kind."""
