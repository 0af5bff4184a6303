"""The command line and the demo: the top layer, which uses all others."""
