"""The settings of consumer groups, as the GROUPS topic publishes them."""
