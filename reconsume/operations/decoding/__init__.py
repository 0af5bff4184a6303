"""Keys and values of records as text that people read."""
