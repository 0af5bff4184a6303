"""Broadcasting: every consumer gets every message."""
