"""Limits on callers: tokens, rates, sizes, shares of memory."""
