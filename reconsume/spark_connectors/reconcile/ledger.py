"""The columns that people see in ledger and findings."""

from __future__ import annotations

import shlex
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.headers import moment
from reconsume.spark_connectors.names import POSITION, shown_name
from reconsume.spark_connectors.reconcile.judged import Committed
from reconsume.spark_connectors.session import local_rows

_PLACE: Final = ("topic", "partition", "offset")


def as_ledger(judged: DataFrame, topic_prefix: str, committed: Committed) -> DataFrame:
    """Return the ledger with one row for each attempt."""
    columns = {
        "group": F.col("group"),
        "origin_message_id": F.col("origin_message_id"),
        "replay_times": F.col("replay_times"),
        "attempt": F.col("attempt"),
        "copy": F.col("copy"),
        "level": F.coalesce("sent_level", "arrived_level"),
        "delay_ms": F.col("sent_delay_ms"),
        "dead": F.coalesce("sent_dead", "arrived_dead", F.lit(False)),
        "replayed": F.coalesce("sent_replayed", F.lit(False)),
        **{f"inbox_{name}": F.col(f"inbox_{name}") for name in ("topic", "partition", "offset")},
        "asked": F.col("inbox_appended"),
        **{f"sent_{name}": F.col(f"sent_{name}") for name in ("topic", "partition", "offset")},
        "appended": F.col("sent_appended"),
        "due": F.col("sent_due"),
        "released": F.coalesce("sent_released", "inbox_released"),
        "target": shown_name(F.col("arrived_topic"), topic_prefix),
        **{f"target_{name}": F.col(f"arrived_{name}") for name in ("topic", "partition", "offset")},
        "delivered": F.col("arrived_appended"),
        "lateness_ms": F.col("lateness_ms"),
        "outcome": F.col("outcome"),
        "consumed": F.when(F.col("arrived_kind") == "retry", F.col("arrived_offset") < F.col("mark")),
        "deliveries": F.col("arrived_deliveries"),
        "cause": F.col("arrived_cause"),
        "damage": F.coalesce("sent_damage", "arrived_damage", "inbox_damage"),
        "stamp": F.coalesce("sent_stamp", "arrived_stamp", "inbox_stamp"),
        "findings": F.col("findings"),
        "notes": F.col("notes"),
    }
    marked = _with_marks(judged, committed, topic_prefix + "RETRY.")
    return marked.select(*(column.alias(name) for name, column in columns.items()))


def _with_marks(judged: DataFrame, committed: Committed, retry_topics: str) -> DataFrame:
    """Add `mark`, the committed offset of the group on the retry topic where the attempt arrived; null if unknown.

    The marks are a broadcast table: Spark would search a map of them from the beginning for each row.
    """
    marks = [
        {"mark_group": group, "mark_topic": topic, "mark_partition": partition, "mark": offset}
        for group, places in committed.items()
        for (topic, partition), offset in places.items()
        if topic.startswith(retry_topics)
    ]
    schema = "mark_group STRING, mark_topic STRING, mark_partition INT, mark BIGINT"
    is_same = F.col("group") == F.col("mark_group")
    for name in ("topic", "partition"):
        is_same &= F.col(f"arrived_{name}") == F.col(f"mark_{name}")
    return judged.join(F.broadcast(local_rows(judged.sparkSession, marks, schema)), is_same, "left")


def as_findings(ledger: DataFrame, column: str, bootstrap_servers: str) -> DataFrame:
    """Return one row for each finding or note: kind, group, place, time, and commands that show the records.

    Args:
        ledger: the result of `as_ledger`.
        column: `findings` or `notes`.
        bootstrap_servers: the brokers in the commands.
    """
    shown = ("group", "origin_message_id", "replay_times", "attempt", "level", "outcome", "lateness_ms")
    sides = [[F.col(f"{side}_{name}") for name in _PLACE] for side in ("inbox", "sent", "target")]
    released = [F.split_part("released", F.lit("/"), F.lit(number)) for number in (1, 2, 3)]
    commands = [_command(bootstrap_servers, *place) for place in (*sides[:2], released, sides[2])]
    return ledger.where(F.size(column) > 0).select(
        F.explode(column).alias("kind"),
        *shown,
        # Python cannot represent all times of producers' clocks.
        *(moment(F.unix_millis(name)).alias(name) for name in ("asked", "appended", "due", "delivered")),
        *(column for place in sides for column in place),
        *("released", "cause", "damage"),
        F.array_compact(F.array(*commands)).alias("commands"),
    )


def _command(bootstrap_servers: str, topic: Column, partition: Column, offset: Column) -> Column:
    """Return a kcat command for a shell; none for places that Kafka cannot have, because anyone may write a mark."""
    command = F.concat(
        F.lit(f"kcat -C -e -b {shlex.quote(bootstrap_servers)} -t "),
        topic,
        *(F.lit(" -p "), partition.cast("string"), F.lit(" -o "), offset.cast("string")),
        F.lit(r" -c 1 -f '%t/%p/%o %T\n%h\n%k\n%s\n'"),
    )
    return F.when(F.concat_ws("/", topic, partition.cast("string"), offset.cast("string")).rlike(POSITION), command)
