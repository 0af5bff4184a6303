"""Have Spark make Java methods that Java compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

__all__ = ["small_methods"]

_LIMIT: Final = "spark.sql.codegen.hugeMethodLimit"
_LARGEST_BYTES: Final = "8000"
"""Java interprets a method with more bytecode for ever. Spark's own limit is 65535: steps with many columns and
conditions, all in one loop, are below that, and four times as slow. A reconcile of a million records takes 23 s so, and
11 s in small methods. Test: tests/spark/test_compiled.py."""


@contextmanager
def small_methods(spark: SparkSession) -> Iterator[None]:
    """What is planned meanwhile is made of many methods where one loop would be too large."""
    if not spark.conf.isModifiable(_LIMIT):
        yield
        return
    before = spark.conf.get(_LIMIT, None)
    spark.conf.set(_LIMIT, _LARGEST_BYTES)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_LIMIT)
        else:
            spark.conf.set(_LIMIT, before)
