"""What commands do and print."""
