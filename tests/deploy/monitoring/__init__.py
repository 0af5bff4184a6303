"""Alerts and dashboards, checked and run in Prometheus."""
