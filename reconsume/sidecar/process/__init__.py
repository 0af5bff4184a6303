"""The process: its parts, its health, its end."""
