"""The records that were read of each partition, and which of them are finished."""
