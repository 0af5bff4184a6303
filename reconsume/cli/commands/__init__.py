"""Commands and their options."""
