"""The metrics of all roles and what each means."""
