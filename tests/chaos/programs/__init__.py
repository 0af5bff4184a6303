"""Processes that the tests start and kill."""
