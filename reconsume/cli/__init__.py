"""The command line and the demo: at the top of the stair, it uses all and nothing uses it."""
