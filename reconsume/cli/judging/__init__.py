"""The end of every message of a demo or a run of faults, from the topics alone."""
