"""The records that were read of each partition, and how far they are finished."""
