"""People's operations on an installation."""
