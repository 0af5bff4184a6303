"""What commands of their own do and print."""
