"""The pages and their contents."""
