"""Producers of delayed messages."""
