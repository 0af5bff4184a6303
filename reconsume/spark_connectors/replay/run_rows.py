"""The rows that a run sends, and the states of those that it has sent.

Guarantees:
    1. From about a minute after a person or a job has settled a dead letter, a run does not send it.
    2. A run replaces no state of a person or a job that is there when it writes those of what it has sent.
    Tests: tests/spark/replay/test_states.py.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.replay.chunks import ReplayChunk, unsettled
from reconsume.spark_connectors.replay.plan import ReplayPlan
from reconsume.spark_connectors.replay.states import STATE_KEY, read_states, state_records
from reconsume.spark_connectors.session import literal_path
from reconsume.spark_connectors.source import TopicSource

_EVERY_SECONDS: Final = 60.0
"""How often a run writes and reads states."""
_AS_LARGE_AS_OURS: Final = {"kafka.max.request.size": "100000000", "kafka.buffer.memory": "134217728"}
"""The size up to which our own clients send; Java's producer refuses records above 1 MiB by default."""


class RunRows:
    """The rows of a run; states are read and written now and then, because each time it is a job of Spark.

    Args:
        source: Kafka.
        plan: the plan.
        left: the rows that nobody has settled.
        folder: for the numbers of rows that are settled while the run lasts.
        read_at: when the states for `left` were read, by `time.monotonic`.
    """

    def __init__(self, source: TopicSource, plan: ReplayPlan, left: DataFrame, folder: str, read_at: float) -> None:
        self._source = source
        self._plan = plan
        self._left = left
        self._folder = folder
        self._read_at = self._marked_at = read_at
        self._settled: DataFrame | None = None
        self._numbers: Sequence[int] = ()
        self._chunks: list[ReplayChunk] = []

    def look_again(self, first: int, now: float) -> None:
        """Read which rows from this number on were settled, if a minute is over since the last time."""
        if now - self._read_at < _EVERY_SECONDS:
            return
        self.mark()  # needs the former numbers
        rows = self._left.where(F.col("number") >= first).join(
            _others(self._source, self._plan), [*STATE_KEY], "left_semi"
        )
        rows.select("number").write.mode("overwrite").parquet(self._folder)
        self._settled = self._source.spark.read.schema("number BIGINT").parquet(literal_path(self._folder))
        self._numbers = array("q", sorted(row["number"] for row in self._settled.toLocalIterator()))
        # A look may take long: the next one begins a minute after its end.
        self._read_at = time.monotonic()

    def count(self, chunk: ReplayChunk) -> int:
        """Return how many rows of a chunk are to be sent."""
        return unsettled(chunk, self._numbers)

    def between(self, first: int, last: int) -> DataFrame:
        """Return the rows to send with these numbers, both included."""
        numbers = F.col("number").between(first, last)
        rows = self._left.where(numbers)
        if self._settled is None or not self._numbers:
            return rows
        return rows.join(self._settled.where(numbers), "number", "left_anti")

    def sent(self, chunk: ReplayChunk, now: float) -> None:
        """Note a chunk whose rows were sent; write states if a minute is over since the last time."""
        self._chunks.append(chunk)
        if now - self._marked_at >= _EVERY_SECONDS:
            self.mark()

    def mark(self) -> None:
        """Write the states of all chunks since the last time."""
        self._marked_at = time.monotonic()
        if self._chunks:
            # Chunks follow each other, so what lies between the first number and the last was sent, or is left out.
            mark_sent(self._source, self._plan, self.between(self._chunks[0].first, self._chunks[-1].last))
            self._chunks.clear()


def mark_sent(source: TopicSource, plan: ReplayPlan, sent: DataFrame) -> None:
    """Write the states of rows that were sent, unless a person or a job has settled them since.

    Raises:
        ReconsumeError: Spark failed; see `failures`.
    """
    with explained(f"the states of what plan {plan.plan_id} has sent cannot be written"):
        rows = sent.withColumn("stored_ms", F.unix_millis("appended"))
        rows = rows.join(_others(source, plan), [*STATE_KEY], "left_anti")
        states = state_records(rows, plan.plan_id, time.time_ns() // 1_000_000)
        states.write.format("kafka").options(**sink(source, source.names.dead_letter_states)).save()


def sink(source: TopicSource, topic: str) -> dict[str, str]:
    """Return the options to write to a topic."""
    settings = dict(source.of_clients().options)
    settings.pop("kafka.isolation.level", None)
    chosen = {name.lower() for name in settings}
    settings |= {name: value for name, value in _AS_LARGE_AS_OURS.items() if name not in chosen}
    return settings | {"kafka.bootstrap.servers": source.bootstrap_servers, "topic": topic}


def _others(source: TopicSource, plan: ReplayPlan) -> DataFrame:
    """Return the keys of dead letters that another plan, a job or a person has settled since the plan was made."""
    states = read_states(source, plan.since_ms)
    return states.where(~F.col("job").eqNullSafe(plan.plan_id)).select(*STATE_KEY)
