"""Examining an installation."""
