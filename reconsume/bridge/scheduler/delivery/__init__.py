"""Writes of due records, and refusals by brokers."""
