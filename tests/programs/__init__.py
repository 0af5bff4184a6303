"""Programs that are started, signalled and read: what they end with, print and leave, with no Kafka."""
