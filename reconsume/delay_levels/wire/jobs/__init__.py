"""Records of the JOBS topic."""
