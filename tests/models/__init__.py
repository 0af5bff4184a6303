"""State machines, and ten minutes of a simulated outage: our own logic, with no Kafka, too long for a unit test."""
