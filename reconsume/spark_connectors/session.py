"""Helpers for Spark sessions, apart from reading Kafka."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, type_name

_LIMIT: Final = "spark.sql.codegen.hugeMethodLimit"
_LARGEST_BYTES: Final = "8000"
"""Java never compiles a method with more bytecode. Spark's own limit is 65535: steps with many columns and conditions
in one loop stay below that, and are four times as slow. A reconcile of a million records then takes 23 s instead of
11 s. Test: tests/spark/test_compiled.py."""

_OLDER_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_OF_A_TEXT: Final = 10_000
"""Rows."""
_ROWS_OF_A_TASK: Final = 250_000
RECORDS_OF_A_TASK: Final = 200_000
"""Read with headers in about two seconds, so that the last task does not take long."""
_BROADCAST_ROWS: Final = 500_000
"""About 100 MB in each executor, and briefly in the driver."""


def check_session(spark: object) -> None:
    """Check that an argument is a Spark session, including the separate class of Spark Connect.

    Raises:
        IllegalSetting: the argument is not a session.
    """
    if not hasattr(spark, "createDataFrame"):
        raise IllegalSetting(f"spark must be a SparkSession, got {type_name(type(spark))}")


def runs_tasks_once(master: str) -> bool:
    """Return whether a master of Spark by default does not restart failed tasks, as `local[n]` and `local[n,1]`."""
    return re.match(r"local(\[[^,]*(,\s*1\s*)?\])?$", master) is not None


def cores_of(spark: SparkSession) -> int | None:
    """Return how many tasks run at once; None over Spark Connect."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return None


def shuffle_partitions(spark: SparkSession) -> int:
    """Return the number of shuffle partitions of the session; on Databricks the setting may be `auto`."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", None) or ""
    return int(chosen) if chosen.isdecimal() else 200


def small_methods(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark generate many small methods instead of one loop that is too large."""
    return _with_setting(spark, _LIMIT, _LARGEST_BYTES)


def newer_reader(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark load Kafka batches through the newer source interface.

    With the older one, its default for batches, each record becomes a `Row` of Java objects and is converted back: a
    count that reads the headers takes 1.7 times the CPU. Spark Connect loads a source later, with its default.
    """
    try:
        older = spark.conf.get(_OLDER_SOURCES) or ""
    except PySparkException:
        return nullcontext()  # later Sparks may have only one interface
    kept = [name for name in older.split(",") if name.strip().lower() != "kafka"]
    return _with_setting(spark, _OLDER_SOURCES, ",".join(kept))


@contextmanager
def _with_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set it temporarily, if the session allows it."""
    if not spark.conf.isModifiable(name):
        yield
        return
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def local_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: str) -> DataFrame:
    """Return these rows in one partition; `createDataFrame` would start a Python process on an executor.

    Args:
        spark: the session.
        rows: texts, numbers and nulls by column.
        schema: an SQL schema, such as `at BIGINT, what STRING`.
    """
    # Spark reads no JSON text of more than 20 million characters.
    texts = [F.lit(json.dumps(rows[at : at + _OF_A_TEXT])) for at in range(0, len(rows) or 1, _OF_A_TEXT)]
    frame = spark.range(0, 1, 1, 1).select(F.explode(F.array(*texts)).alias("text"))
    parsed = frame.select(F.explode(F.from_json("text", f"ARRAY<STRUCT<{schema}>>")).alias("row"))
    return parsed.select("row.*")


def spread(frame: DataFrame, rows: int | None, *columns: Column | str, in_order: bool = False) -> DataFrame:
    """Gather rows with equal values in these columns in one partition, with partitions for this many rows.

    Args:
        frame: the frame to repartition.
        rows: the approximate number of rows; None if unknown.
        columns: the columns to gather rows by.
        in_order: whether partitions are ranges of these columns.
    """
    of_session = shuffle_partitions(frame.sparkSession)
    needed = -(-(rows or 0) // _ROWS_OF_A_TASK)
    spread_by: Callable[..., DataFrame] = frame.repartitionByRange if in_order else frame.repartition
    # An explicit number is kept; without it Spark merges small partitions.
    return spread_by(needed, *columns) if needed > of_session else spread_by(*columns)


def rows_to_read(frame: DataFrame, topic_partitions: int = 0) -> int | None:
    """Return about how many offsets Spark's Kafka source will read, to some hundred thousand for each partition.

    Returns None if Spark does not tell, as over Spark Connect.

    Args:
        frame: a frame as read, without joins and unions.
        topic_partitions: the number of tasks without splits.
    """
    tasks = tasks_of(frame)
    return None if tasks is None else max(0, tasks - topic_partitions) * RECORDS_OF_A_TASK


def tasks_of(frame: DataFrame) -> int | None:
    """Return how many tasks Spark reads in; None if it does not tell, as over Spark Connect.

    Args:
        frame: a frame as read, without joins and unions.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    try:
        return int(plan.queryExecution().toRdd().getNumPartitions())
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        return None  # errors of Kafka appear when it is read


def broadcast_if_few(frame: DataFrame, rows: int) -> DataFrame:
    """Broadcast the whole frame in a join, unless it has too many rows for that.

    Args:
        frame: a frame of narrow rows.
        rows: the maximum number of its rows.
    """
    return F.broadcast(frame) if rows <= _BROADCAST_ROWS else frame


def looked_up(values: Mapping[Any, int], key: Column) -> Column:
    """Return the driver's value for a key, null if it has none."""
    if not values:
        return F.lit(None).cast("bigint")
    entries = [F.lit(one) for pair in values.items() for one in pair]
    return F.try_element_at(F.create_map(*entries), key).cast("bigint")


def check_folder(name: str, folder: object) -> None:
    """Check a folder from an argument; with an empty one the files would be in the root folder, or anywhere.

    Raises:
        IllegalSetting: the folder is not a path, or is empty.
    """
    check_types({name: folder}, **{name: (str, os.PathLike)})
    if not str(folder).strip():
        raise IllegalSetting(f"{name} must name a folder, got {folder!r}")


def literal_path(path: str) -> str:
    """Return a path escaped for Spark's readers, which take brackets and stars as patterns."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def rows_if_there(read: Callable[[], DataFrame]) -> list[Row] | None:
    """Return the rows of a table of files; None if its folder does not exist."""
    try:
        return read().collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
