"""Sign-in of people, their roles, and the groups that these hold for."""
