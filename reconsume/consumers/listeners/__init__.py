"""Calling listeners: in parallel, in order, with circuit breakers."""
