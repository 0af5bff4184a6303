"""The records that a run reads, and the attempts that they are of."""
