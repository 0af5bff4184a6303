"""The sidecar process: its parts, health and end."""
