"""Commands as a user types them, and whole installations."""
