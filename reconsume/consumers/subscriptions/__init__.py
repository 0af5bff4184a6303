"""The topics that a consumer reads."""
