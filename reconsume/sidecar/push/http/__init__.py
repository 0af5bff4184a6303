"""Connections to the application."""
