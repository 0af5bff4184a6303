"""Jobs on many dead letters, from a filter or a selection; any runner may run them, and each letter is handled once."""
