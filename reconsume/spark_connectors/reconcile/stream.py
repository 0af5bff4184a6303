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
    """Start a query that adds a run to the ledger again and again; `read_ledger` tells what they found.

    The ledger itself knows what was read and what is open, so a run that is interrupted is simply made again. Runs are
    driven by the clock and not by records, because what is overdue or lost is seen when nothing comes any more. The
    checkpoint, in the ledger's folder, counts the runs.

    Args:
        spark: a session with the Kafka connector, see `configure`.
        bootstrap_servers: host:port of Kafka, several with commas.
        ledger: its folder; a first run makes it. Only one query may write to it.
        every: from the start of a run to that of the next one; a run that takes longer is followed at once. By
            default there is one run, and the query ends (`availableNow`).
        topic_prefix: of the installation.
        committed: called before each run, see `reconcile`.
        extents: see `reconcile`.
        delay_levels: the level table, in place of what the GROUPS topic says.
        tolerances: what is still taken for right.
        options: of Spark's Kafka source.

    Raises:
        IllegalSetting: `every` is not positive, or the session is one of Spark Connect.
    """
    check_session(spark)
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        # It keeps plans by numbers that begin anew in the process of each batch: a run would see the files of another.
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
