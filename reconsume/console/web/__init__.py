"""What every page has: sign-in, checks, errors, languages."""
