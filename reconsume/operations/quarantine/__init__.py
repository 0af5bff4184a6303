"""The quarantine: read it, however large; release and resolve its records, each once."""
