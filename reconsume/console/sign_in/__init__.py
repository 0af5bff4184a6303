"""Who uses the console, and what they may do."""
