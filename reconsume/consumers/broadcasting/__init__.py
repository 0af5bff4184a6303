"""Consumers of which each gets every message."""
