"""What an application answers and what it means."""
