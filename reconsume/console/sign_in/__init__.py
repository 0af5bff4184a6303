"""The users of the console and their rights."""
