"""Pushed messages as HTTP requests."""
