"""A model of the consumer, with members, a group and a Kafka in memory."""
