"""Apps behind the sidecar."""
