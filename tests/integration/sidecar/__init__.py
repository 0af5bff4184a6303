"""The sidecar's API and its process."""
