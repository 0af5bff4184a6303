"""`reconsume doctor`: what is wrong with an installation, and what mends it."""
