"""The parts of a process that need no Kafka: settings, identity, clocks."""
