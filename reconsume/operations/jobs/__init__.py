"""Jobs on many dead letters: created from a filter or a selection, run by any runner, each letter once."""
