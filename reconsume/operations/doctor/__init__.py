"""The examination of an installation."""
