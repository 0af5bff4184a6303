"""What was read of each partition and how far it is done."""
