"""Which topics a consumer reads."""
