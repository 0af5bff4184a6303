"""The actions of commands, and their output."""
