"""The topics of an installation: what they should be, and whether they exist."""
