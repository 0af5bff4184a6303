"""Other products, measured on this machine: fetched with mvn, started on loopback, one after the other."""
