"""Clients of Kafka: their settings, their errors, the requests that they make."""
