"""The consumer groups' settings, as the GROUPS topic publishes them."""
