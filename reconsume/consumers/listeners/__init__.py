"""Calls of listeners: concurrent, in order, with circuit breakers."""
