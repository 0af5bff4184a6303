"""Clients, readers and writers of Kafka, on a real one."""
