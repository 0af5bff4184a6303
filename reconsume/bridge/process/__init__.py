"""What a process has before it meets Kafka: settings, identity, clocks."""
