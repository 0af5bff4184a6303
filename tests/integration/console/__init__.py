"""The console: its pages, and a browser."""
