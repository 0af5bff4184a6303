"""Who may call, how often and with how much."""
