"""The pages and what they show."""
