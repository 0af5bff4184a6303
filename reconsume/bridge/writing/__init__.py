"""Writing records, in transactions or without."""
