"""Where a due record goes."""
