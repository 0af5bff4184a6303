"""The broker side: settings, Kafka access, topics, groups, the scheduler, metrics."""
