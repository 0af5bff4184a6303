"""Steps on a Spark session besides reading Kafka."""

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
"""Java interprets a method with more bytecode forever. Spark's own limit is 65535: steps with many columns and
conditions, all in one loop, are below that, and four times as slow. A reconcile of a million records takes 23 s so, and
11 s in small methods. Test: tests/spark/test_compiled.py."""

_OLDER_SOURCES: Final = "spark.sql.sources.useV1SourceList"
_OF_A_TEXT: Final = 10_000
"""Rows."""
_ROWS_OF_A_TASK: Final = 250_000
RECORDS_OF_A_TASK: Final = 200_000
"""Read with their headers in some two seconds, so that the last task keeps nobody waiting for long."""
_BROADCAST_ROWS: Final = 500_000
"""Some 100 MB in each executor, and for a moment in the driver."""


def check_session(spark: object) -> None:
    """Check that an argument is a Spark session, also of Spark Connect, which has a class of its own.

    Raises:
        IllegalSetting: it is something else.
    """
    if not hasattr(spark, "createDataFrame"):
        raise IllegalSetting(f"spark must be a SparkSession, got {type_name(type(spark))}")


def runs_tasks_once(master: str) -> bool:
    """Whether a master of Spark by default does not run a failed task again: `local[n]` does not."""
    return re.match(r"local(\[[^,]*\])?$", master) is not None


def cores_of(spark: SparkSession) -> int | None:
    """How many tasks run at once, as far as the session tells; None over Spark Connect."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return None


def shuffle_partitions(spark: SparkSession) -> int:
    """In how many partitions the session shuffles; Databricks has `auto` there too."""
    chosen = spark.conf.get("spark.sql.shuffle.partitions", None) or ""
    return int(chosen) if chosen.isdecimal() else 200


def small_methods(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark plan many small methods in place of one loop that is too large."""
    return _with_setting(spark, _LIMIT, _LARGEST_BYTES)


def newer_reader(spark: SparkSession) -> AbstractContextManager[None]:
    """Let Spark load Kafka by the newer interface of sources, for batches.

    By the older one, its default for batches, each record becomes a `Row` of Java objects and is taken apart again: a
    count that reads the headers takes 1.7 times the CPU. Spark Connect loads a source later, with its default.
    """
    try:
        older = spark.conf.get(_OLDER_SOURCES) or ""
    except PySparkException:
        return nullcontext()  # a later Spark may have but one interface
    kept = [name for name in older.split(",") if name.strip().lower() != "kafka"]
    return _with_setting(spark, _OLDER_SOURCES, ",".join(kept))


@contextmanager
def _with_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Set it for a while, where the session allows that."""
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
    """These rows in one partition; `createDataFrame` would start a Python process on an executor for them.

    Args:
        spark: the session.
        rows: texts, numbers and null by column.
        schema: as SQL has it, such as `at BIGINT, what STRING`.
    """
    # Spark reads no JSON text of more than 20 million characters.
    texts = [F.lit(json.dumps(rows[at : at + _OF_A_TEXT])) for at in range(0, len(rows) or 1, _OF_A_TEXT)]
    frame = spark.range(0, 1, 1, 1).select(F.explode(F.array(*texts)).alias("text"))
    parsed = frame.select(F.explode(F.from_json("text", f"ARRAY<STRUCT<{schema}>>")).alias("row"))
    return parsed.select("row.*")


def spread(frame: DataFrame, rows: int | None, *columns: Column | str, in_order: bool = False) -> DataFrame:
    """Rows with the same values in these columns in one partition, and as many partitions as so many rows need.

    Args:
        frame: what is spread.
        rows: about so many; None if that is unknown.
        columns: to bring rows together by.
        in_order: whether partitions are ranges of these columns.
    """
    of_session = shuffle_partitions(frame.sparkSession)
    needed = -(-(rows or 0) // _ROWS_OF_A_TASK)
    spread_by: Callable[..., DataFrame] = frame.repartitionByRange if in_order else frame.repartition
    # A number that is named is kept; without it Spark puts small partitions together.
    return spread_by(needed, *columns) if needed > of_session else spread_by(*columns)


def rows_to_read(frame: DataFrame, topic_partitions: int = 0) -> int | None:
    """About how many offsets Spark's Kafka source will read, to some hundred thousand for each partition.

    None where Spark does not tell, as over Spark Connect.

    Args:
        frame: as it is read, without joins and unions.
        topic_partitions: so many tasks there would be without splits.
    """
    tasks = tasks_of(frame)
    return None if tasks is None else max(0, tasks - topic_partitions) * RECORDS_OF_A_TASK


def tasks_of(frame: DataFrame) -> int | None:
    """In how many tasks Spark reads; None where it does not tell, as over Spark Connect.

    Args:
        frame: as it is read, without joins and unions.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    try:
        return int(plan.queryExecution().toRdd().getNumPartitions())
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        return None  # what is wrong with Kafka shows when it is read


def broadcast_if_few(frame: DataFrame, rows: int) -> DataFrame:
    """Have each executor hold the whole frame in a join, unless it has too many rows for that.

    Args:
        frame: of narrow rows.
        rows: at most so many.
    """
    return F.broadcast(frame) if rows <= _BROADCAST_ROWS else frame


def looked_up(values: Mapping[Any, int], key: Column) -> Column:
    """The value that the driver knows for a key, null where there is none."""
    if not values:
        return F.lit(None).cast("bigint")
    entries = [F.lit(one) for pair in values.items() for one in pair]
    return F.try_element_at(F.create_map(*entries), key).cast("bigint")


def check_folder(name: str, folder: object) -> None:
    """Check the folder of an argument: of an empty one the files would be in the root, or anywhere.

    Raises:
        IllegalSetting: it is no path, or has no name.
    """
    check_types({name: folder}, **{name: (str, os.PathLike)})
    if not str(folder).strip():
        raise IllegalSetting(f"{name} must name a folder, got {folder!r}")


def literal_path(path: str) -> str:
    """Return a path as Spark's readers take it, which would look for all that match one with brackets or stars."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def rows_if_there(read: Callable[[], DataFrame]) -> list[Row] | None:
    """The rows of a table of files; None if its folder is not there."""
    try:
        return read().collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
