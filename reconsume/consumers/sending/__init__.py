"""Send-backs of failed messages."""
