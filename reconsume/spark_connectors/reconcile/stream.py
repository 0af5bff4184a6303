"""Reconcile as a stream: each micro-batch is a run of a ledger that grows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from types import NoneType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types
from reconsume.spark_connectors.reconcile.judged import Committed, Tolerances
from reconsume.spark_connectors.reconcile.records.deleted import ExtentsSince
from reconsume.spark_connectors.reconcile.run import reconcile
from reconsume.spark_connectors.session import check_folder, check_session


def reconcile_stream(
    spark: SparkSession,
    bootstrap_servers: str,
    ledger: str,
    *,
    every: dt.timedelta | None = None,
    topic_prefix: str = "reconsume.",
    committed: Callable[[], Committed] | None = None,
    extents: ExtentsSince | None = None,
    delay_levels: str | None = None,
    tolerances: Tolerances | None = None,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that adds runs to the ledger; `read_ledger` returns their results.

    The ledger stores its progress and open attempts, so an interrupted run is simply repeated. The clock starts runs,
    not new records, because overdue and lost attempts show when nothing arrives any more. The checkpoint, in the
    ledger's folder, counts the runs.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        ledger: the ledger's folder, which the first run creates. Only one query may write to it.
        every: the interval between starts of runs; after a longer run the next one starts at once. By default there is
            one run, and the query ends (`availableNow`).
        topic_prefix: the prefix of the installation's topics.
        committed: called before each run, see `reconcile`.
        extents: see `reconcile`.
        delay_levels: a level table that replaces the one in the GROUPS topic.
        tolerances: deviations that are not findings.
        options: options of Spark's Kafka source.

    Raises:
        IllegalSetting: `every` is not positive, or the session is one of Spark Connect.
    """
    check_session(spark)
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        # Spark Connect caches plans by ids that restart in each batch's process: a run would see another run's files.
        raise IllegalSetting(
            "a stream of reconcile needs a Spark of its own; over Spark Connect call reconcile(ledger=…)"
        )
    check_folder("ledger", ledger)
    check_types(locals(), every=(dt.timedelta, NoneType))
    if every is not None and every <= dt.timedelta(0):
        raise IllegalSetting(f"every {every}: must be more than 0")

    def run(batch: DataFrame, _number: int) -> None:
        found = reconcile(
            batch.sparkSession,
            bootstrap_servers,
            topic_prefix=topic_prefix,
            committed=None if committed is None else committed(),
            extents=extents,
            delay_levels=delay_levels,
            tolerances=tolerances,
            ledger=ledger,
            options=options,
        )
        found.close()

    ticks = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=1, numPartitions=1).load()
    writer = ticks.writeStream.foreachBatch(run).option("checkpointLocation", f"{ledger}/checkpoint")
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every // dt.timedelta(milliseconds=1)} milliseconds").start()
