"""Histories of messages that the tests of Spark read."""
