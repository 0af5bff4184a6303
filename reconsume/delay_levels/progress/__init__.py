"""Which records of a partition are done."""
