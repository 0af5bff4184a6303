"""The topics of an installation: their target state, and whether they exist."""
