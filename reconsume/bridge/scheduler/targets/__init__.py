"""The destinations of due records."""
