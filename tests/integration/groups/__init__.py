"""Settings of groups: commands, files, pauses and limits."""
