"""Writes the files under `deploy` that are generated from settings, metrics, values and alerts."""
