"""SQL views of failures, attempts and lateness; docs/spark.md has questions for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.names import DLQ_PREFIX, RETRY_PREFIX
from reconsume.spark_connectors.readers import read_dead_letters, read_delays, read_kinds, read_retries
from reconsume.spark_connectors.source import DEFAULT_PREFIX

_IDENTITY: Final = ("group", "origin_message_id", "replay_times", "attempt")


def create_views(
    spark: SparkSession,
    bootstrap_servers: str,
    *,
    topic_prefix: str = DEFAULT_PREFIX,
    options: Mapping[str, str] | None = None,
) -> list[str]:
    """Create temporary views for SQL: `reconsume_` with the names below. Each query reads the topics anew.

    `delays`, `retries`, `dead_letters` have the readers' schema. `failures` has a row for each send-back, `attempts`
    for each send-back or replay, with its delivery and `outcome` (`waiting`, `moved`, `dead`), `lateness` for the
    delivered ones.

    Returns:
        The names of the views.
    """

    def read(kinds: tuple[str, ...]) -> DataFrame:
        return read_kinds(spark, bootstrap_servers, kinds, topic_prefix=topic_prefix, options=options)

    delays = read(("delay",))
    is_replay = F.col("replay_id").isNotNull() & F.col("attempt").eqNullSafe(0)
    attempts = _attempts(_sends(delays), read(("retry", "dead_letter")))
    frames = {
        "delays": read_delays(spark, bootstrap_servers, topic_prefix=topic_prefix, options=options),
        "retries": read_retries(spark, bootstrap_servers, topic_prefix=topic_prefix, options=options),
        "dead_letters": read_dead_letters(spark, bootstrap_servers, topic_prefix=topic_prefix, options=options),
        "failures": _sends(delays.where(~is_replay)),
        "attempts": attempts,
        "lateness": attempts.where("delivered IS NOT NULL").select(
            *("group", "delay_ms", "due", "delivered", "lateness_ms")
        ),
    }
    for name, frame in frames.items():
        frame.createOrReplaceTempView(f"reconsume_{name}")
    return [f"reconsume_{name}" for name in frames]


def _sends(delays: DataFrame) -> DataFrame:
    """Return send-backs and replays; delayed messages, which go to ordinary topics, are left out."""
    sent_back = F.col("target").startswith(RETRY_PREFIX) | F.col("target").startswith(DLQ_PREFIX)
    return delays.where(sent_back).select(
        *_IDENTITY,
        *("origin_topic", "born", "level", "delay_ms", "due", "tags", "keys"),
        F.col("target").startswith(DLQ_PREFIX).alias("last"),
        F.col("appended").alias("failed"),
    )


def _attempts(sends: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Return each send-back or replay with its first delivery; `reconcile` proves that there is only one."""
    came = deliveries.groupBy(*_IDENTITY).agg(
        F.min("appended").alias("delivered"), F.min_by("kind", "appended").alias("kind")
    )
    outcome = F.when(F.col("kind") == "retry", "moved").when(F.col("kind") == "dead_letter", "dead")
    return sends.join(came, list(_IDENTITY), "left").select(
        *sends.columns,
        "delivered",
        (F.unix_millis("delivered") - F.unix_millis("due")).alias("lateness_ms"),
        F.coalesce(outcome, F.lit("waiting")).alias("outcome"),
    )
