"""The metrics of all roles, with their meanings."""
