"""The chart on a Kubernetes API server."""
