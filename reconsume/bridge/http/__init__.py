"""HTTP servers for health, metrics, the sidecar and the console."""
