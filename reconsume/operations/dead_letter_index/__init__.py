"""An index of dead letters that can be rebuilt from Kafka."""
