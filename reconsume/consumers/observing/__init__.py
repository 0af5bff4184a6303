"""Hooks, metrics and traces of consumers."""
