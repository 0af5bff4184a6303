"""`reconsume console`: what waits and what is dead, in a browser; dead letters are sent again from there."""
