"""Common parts of pages: sign-in, checks, errors, languages."""
