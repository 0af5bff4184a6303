"""Programs of confluent-kafka changed to the drop-in; `plain/` has them as they were, diff them."""
