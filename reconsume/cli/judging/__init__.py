"""The outcome of every message of a demo or of a run of faults, from the topics alone."""
