"""Reading records and offsets outside of a consumer group."""
