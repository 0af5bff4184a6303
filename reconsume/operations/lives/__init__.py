"""Where messages of a group are now, and the history of one message."""
