"""Brokers, proxies and processes under test."""
