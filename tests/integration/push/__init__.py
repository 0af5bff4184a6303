"""The sidecar's push to apps."""
