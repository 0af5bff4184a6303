"""Where messages of a group are now, and where one has been."""
