"""Replay: plans, runs, its command, dead letters of other systems."""
