"""Dead letters with the state "resent": each must have its resend in `DELAY.0s`.

Guarantees: judges only marks whose resends `DELAY.0s` cannot have lost, and only if the dead letter was read. Test:
tests/spark/replay/test_resend_agrees.py.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.dead_letter_states import RESENT
from reconsume.spark_connectors.reconcile.judged import SETTLED_MS
from reconsume.spark_connectors.reconcile.records.deleted import ExtentsSince, First, deleted_until
from reconsume.spark_connectors.replay.replays import stored_replays
from reconsume.spark_connectors.replay.states import read_states
from reconsume.spark_connectors.session import broadcast_if_few
from reconsume.spark_connectors.source import TopicSource

_KEPT_MS: Final = 6 * 86_400_000
"""`DELAY.0s` keeps seven days by default."""
_MARKED_LATE_MS: Final = 3_600_000
"""A mark may be this much later than its resend: Spark writes marks after each chunk, by its own clock."""
_PLACE: Final = ("target_topic", "target_partition", "target_offset")


def note_missing_resends(source: TopicSource, rows: DataFrame, now_ms: int, extents: ExtentsSince | None) -> DataFrame:
    """Add the finding `NOT_RESENT` to dead letters that are marked as resent and were not.

    Args:
        source: read for marks, and for resends if marks exist.
        rows: the result of `as_ledger`.
        now_ms: the time of the run.
        extents: called if resends are missing; None if extents are unknown.
    """
    marked = (F.col("state") == RESENT) & F.col("at").between(now_ms - _KEPT_MS, now_ms - SETTLED_MS)
    marks = read_states(source).where(marked)
    if marks.isEmpty():
        return rows
    places = [
        F.col(name) == F.col(mine) for name, mine in zip(("kafka_topic", "partition", "offset"), _PLACE, strict=True)
    ]
    same = [*places, F.col("stored_ms") == F.unix_millis("delivered")]
    dead = rows.where(F.col("outcome").isin("dead", "unexplained")).select("origin_message_id", "delivered", *_PLACE)
    told = dead.join(marks, same).select(F.col("origin_message_id").alias("message_id"), "job", "at", *_PLACE)
    # A job writes a mark and its resend in one transaction, so a mark has no aborted resend.
    sent = stored_replays(source).select("message_id", F.col("replay_id").alias("job"))
    missing = told.join(sent, ["message_id", "job"], "left_anti").select(
        "at", *(F.col(name).alias(f"not_{name}") for name in _PLACE), F.lit(True).alias("not_resent")
    )
    missing = missing.distinct()
    ((count, last_ms),) = missing.agg(F.count(F.lit(1)), F.max("at")).collect()
    if not count or last_ms < (kept_ms := _kept_from(source, extents, now_ms)):
        return rows
    missing = missing.where(F.col("at") >= kept_ms).drop("at")
    joined = rows.join(
        broadcast_if_few(missing, count), [F.col(name) == F.col(f"not_{name}") for name in _PLACE], "left"
    )
    findings = F.when(F.col("not_resent"), F.array_append("findings", F.lit("NOT_RESENT"))).otherwise(F.col("findings"))
    return joined.withColumn("findings", findings).select(*rows.columns)


def _kept_from(source: TopicSource, extents: ExtentsSince | None, now_ms: int) -> int:
    """Return the time of the first mark whose resend cannot have been deleted."""
    lane = source.names.delay(0)
    # Before the records are read: what is deleted meanwhile makes the time later, never earlier.
    known = None if extents is None else {at: one for at, one in extents(0).items() if at[0] == lane}
    begins = source.of_clients().raw([lane]).groupBy("partition")
    first = begins.agg(F.min("offset"), F.min_by(F.unix_millis("timestamp"), "offset")).collect()
    read = {(lane, partition): First(offset, at_ms) for partition, offset, at_ms in first}
    until_ms = deleted_until(read, known, now_ms, guess=True, gaps=False).get(lane, 0)
    return until_ms + _MARKED_LATE_MS if until_ms else 0
