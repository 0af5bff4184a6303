"""Screenshots for the docs, taken from the running software by `make pictures`."""
