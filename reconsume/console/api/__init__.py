"""The console's HTTP API."""
