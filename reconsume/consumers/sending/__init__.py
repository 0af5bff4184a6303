"""Sending failed messages back."""
