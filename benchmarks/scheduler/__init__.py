"""What scheduler workers deliver, and what that costs."""
