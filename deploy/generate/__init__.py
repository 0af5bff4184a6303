"""Writes the files under `deploy` that are made from the settings, the metrics, the values and the alerts."""
