"""Requests that come twice."""
