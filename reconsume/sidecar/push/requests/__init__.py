"""What a pushed message looks like."""
