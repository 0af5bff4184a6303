"""Read the quarantine, also a large one; release and resolve its records, each once."""
