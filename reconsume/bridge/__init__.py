"""The broker side: settings, Kafka clients, topics, groups, the scheduler, metrics."""
