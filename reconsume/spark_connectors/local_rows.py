"""A small table of values that the driver knows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["local_rows"]


def local_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: str) -> DataFrame:
    """These rows in one partition; `createDataFrame` would start a Python process on an executor for them.

    Args:
        spark: the session.
        rows: texts, numbers and null by column.
        schema: as SQL has it, such as `at BIGINT, what STRING`.
    """
    text = F.lit(json.dumps(list(rows)))
    parsed = F.from_json(text, f"ARRAY<STRUCT<{schema}>>")
    return spark.range(0, 1, 1, 1).select(F.explode(parsed).alias("row")).select("row.*")
