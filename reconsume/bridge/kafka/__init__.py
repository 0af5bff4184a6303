"""Clients of Kafka: their settings, their errors, the questions that they ask."""
