"""Listening for HTTP: health, metrics, and the servers of the sidecar and the console."""
