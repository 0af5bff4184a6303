"""An index of dead letters that is rebuilt from Kafka at will."""
