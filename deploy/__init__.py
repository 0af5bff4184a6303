"""Files for operators, and the programs that generate some of them."""
