"""The limits on callers: who, how often, how much."""
