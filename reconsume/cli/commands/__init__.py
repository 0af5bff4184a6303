"""Groups of commands, and the options of the others."""
