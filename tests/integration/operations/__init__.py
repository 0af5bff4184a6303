"""Dead letters, jobs, quarantine and status on a real Kafka."""
