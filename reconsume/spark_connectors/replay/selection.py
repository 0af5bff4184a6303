"""The dead letters that a plan sends, the copies, and the reasons for omissions."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from reconsume.delay_levels.wire import properties as p
from reconsume.delay_levels.wire.dead_letter_states import RESENT, RESOLVED
from reconsume.delay_levels.wire.names import RETRY_PREFIX
from reconsume.spark_connectors.headers import HeaderColumns
from reconsume.spark_connectors.names import place_of
from reconsume.spark_connectors.session import spread

SEND: Final = "send"
STATUSES: Final = {
    SEND: "will be sent",
    "no_group": "nothing tells its consumer group; name one with group",
    "no_origin": "nothing tells its origin topic",
    "damaged": "a header that tells its identity or its count does not hold what it must",
    "superseded": "the same message has a newer dead letter",
    "replayed": "another plan has replayed it",
    "resolved": "someone has resolved it",
    "capped": "it was replayed as often as is allowed",
}
"""The statuses of dead letters in a plan."""
_NEEDED: Final = (p.ORIGIN_MESSAGE_ID, p.RETRY_TOPIC, p.REPLAY_TIMES)
_REPLACED: Final = (*sorted(p.OUR_PROPERTIES), p.REPLAY_ID, p.REPLAY_TIMES)


def with_identity(dead: DataFrame, target: str, group: str | None) -> DataFrame:
    """Add `message_id` (the origin message id, else the dead letter's place) and `real_topic`, its target.

    Args:
        dead: dead letters in the readers' schema.
        target: `retry` or `origin`.
        group: the group of dead letters that do not name one.
    """
    groups = F.coalesce(F.col("group"), F.lit(group).cast("string"))
    real_topic = F.concat(F.lit(RETRY_PREFIX), groups) if target == "retry" else F.col("origin_topic")
    message_id = F.coalesce("origin_message_id", place_of("kafka_topic", "partition", "offset"))
    return dead.withColumns({"message_id": message_id, "group": groups, "real_topic": real_topic})


def with_status(
    dead: DataFrame, replays: DataFrame, states: DataFrame, max_replays: int, size: int | None = None
) -> DataFrame:
    """Return the selected dead letters with `status` (see `STATUSES`) and the highest known `replay_times`.

    All facts about a message are gathered in one shuffle; rows of `replays` have no `chosen`.

    Args:
        dead: all dead letters with their identity, and whether each is `chosen`.
        replays: the result of `read_replays`.
        states: the result of `read_states`.
        max_replays: a message that was replayed this often is not sent again.
        size: the approximate number of dead letters; None if unknown.
    """
    to_group = F.col("real_topic").startswith(RETRY_PREFIX)
    earlier = replays.select(
        "message_id",
        "born",
        F.when(to_group, F.col("real_topic")).alias("retry_name"),
        "replayed_at",
        F.when(~to_group, F.col("replayed_at")).alias("all_at"),
        F.col("replay_times").alias("earlier_times"),
        F.when(~to_group, F.col("replay_times")).alias("all_times"),
    )
    dead = dead.withColumn("retry_name", F.concat(F.lit(RETRY_PREFIX), "group"))
    # Null for a replay's row, which has no topic.
    place = F.when(F.col("kafka_topic").isNotNull(), F.struct("appended", "kafka_topic", "partition", "offset"))
    together = spread(dead.unionByName(earlier, allowMissingColumns=True), size, "message_id")
    known = together.withColumns(
        {
            "newest": _of_message(place, "real_topic"),
            "replayed_at": F.greatest(_of_message(F.col("replayed_at"), "retry_name"), _of_message(F.col("all_at"))),
            "replay_times": F.greatest(
                _of_message(F.col("replay_times"), "real_topic"),
                _of_message(F.col("earlier_times"), "retry_name"),
                _of_message(F.col("all_times")),
            ),
        }
    )
    keys = ["kafka_topic", "partition", "offset", "stored_ms"]
    known = (
        known.where("chosen")
        .withColumn("stored_ms", F.unix_millis("appended"))
        .join(states.select(*keys, "state"), keys, "left")
    )
    status = (
        F.when(F.arrays_overlap("malformed", F.array(*map(F.lit, _NEEDED))), "damaged")
        .when(F.col("group").isNull() & F.col("real_topic").isNull(), "no_group")
        .when(F.col("real_topic").isNull(), "no_origin")
        .when(F.col("newest") > place, "superseded")
        .when((F.col("state") == RESENT) | (F.col("replayed_at") >= F.col("appended")), "replayed")
        .when(F.col("state") == RESOLVED, "resolved")
        .when(F.col("replay_times") >= max_replays, "capped")
        .otherwise(SEND)
    )
    return known.select(*dead.columns, status.alias("status"))


def _of_message(value: Column, *target: str) -> Column:
    """Return the largest value of all rows of a row's message, see `wire.resend.is_same_message`."""
    # Both frames have the same order, because Spark sorts once for each order.
    ordered, is_unknown = Window.partitionBy("message_id", *target).orderBy("born"), F.col("born").isNull()
    of_id = ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    born_then = ordered.rangeBetween(Window.currentRow, Window.currentRow)
    unknown = F.max(F.when(is_unknown, value)).over(of_id)
    return F.when(is_unknown, F.max(value).over(of_id)).otherwise(F.greatest(F.max(value).over(born_then), unknown))


def with_message(planned: DataFrame, plan_id: str, target: str) -> DataFrame:
    """Replace `headers` by those to send: the user's unchanged, then reconsume's."""
    stored = HeaderColumns(F.col("headers"))

    def is_ours(header: Column) -> Column:
        # A null key has unknown headers, which would be lost.
        known = header["key"].isin(*_REPLACED) | header["key"].startswith(p.DLQ_ERRORS)
        return F.coalesce(known, F.lit(False))

    users = F.filter("headers", lambda header: ~is_ours(header))
    ours = {
        p.ORIGIN_MESSAGE_ID: F.col("message_id"),
        p.REAL_TOPIC: F.col("real_topic"),
        p.BORN_TIMESTAMP: F.coalesce(F.unix_millis("born"), stored.not_negative(p.BORN_TIMESTAMP)).cast("string"),
        p.REPLAY_ID: F.lit(plan_id),
        # Of records that are not sent it may be the largest number, beyond which ANSI mode raises an error.
        p.REPLAY_TIMES: F.try_add("replay_times", F.lit(1)).cast("string"),
    }
    if target == "retry":
        maximum = stored.not_negative(p.MAX_RECONSUME_TIMES).cast("string")
        ours = {
            p.RETRY_TOPIC: F.col("origin_topic"),
            p.RECONSUME_TIME: F.lit("0"),
            p.DELAY: F.lit("0"),
            p.MAX_RECONSUME_TIMES: maximum,
            **ours,
        }
    else:
        ours[p.REAL_QID] = F.col("origin_partition").cast("string")
    headers = [_header(name, value) for name, value in ours.items()]
    return planned.withColumn(
        "headers", F.concat(users, F.filter(F.array(*headers), lambda one: one["value"].isNotNull()))
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), F.encode(value, "UTF-8").alias("value"))
