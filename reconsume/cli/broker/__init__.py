"""A real Apache Kafka on this machine: Java, its jars, one process that dies with its parent."""
