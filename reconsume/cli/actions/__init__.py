"""What commands do, and their output."""
