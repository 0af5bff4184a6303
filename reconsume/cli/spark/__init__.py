"""Spark on this machine or elsewhere, for the commands that use it."""
