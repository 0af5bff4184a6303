"""Figures and rows of `reconsume demo`."""
