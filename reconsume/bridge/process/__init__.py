"""Parts of a process that do not need Kafka: settings, identity, clocks."""
