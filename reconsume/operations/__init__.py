"""What people do to an installation."""
