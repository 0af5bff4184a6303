"""Keys and values of records as readable text."""
