"""Scheduler workers on a real Kafka."""
