"""The documentation as tests read and run it."""
