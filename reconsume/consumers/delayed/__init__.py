"""Producing delayed messages."""
