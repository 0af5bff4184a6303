"""Programs for Spark, in cells as notebooks have them."""
