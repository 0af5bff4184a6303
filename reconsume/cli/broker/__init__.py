"""A real Apache Kafka on this machine: Java, its jars, a process that ends with its parent."""
