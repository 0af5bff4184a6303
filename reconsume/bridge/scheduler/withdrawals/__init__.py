"""Delayed messages that were cancelled."""
