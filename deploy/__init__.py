"""Files for operators, and the programs that write what is generated among them."""
