"""A partition without an offset to go on from, and one whose topic was made again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.consumers.partitions.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.partitions.offset_reset import OffsetReset
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from tests.unit.consumers.doubles import RETRY_TOPIC

LAST = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
MOMENT = ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 5_000)


@dataclass
class Asked:
    """Answers as a Kafka consumer does.

    Attributes:
        committed_offset: None if nobody answers.
        end: of the partition; None if nobody answers.
    """

    committed_offset: int | None
    end: int | None = 100

    def committed(self, partitions: Collection[Partition], _seconds: float) -> dict[Partition, Commit | ReconsumeError]:
        if self.committed_offset is None:
            return dict.fromkeys(partitions, KafkaNotReachable("away"))
        return dict.fromkeys(partitions, Commit(self.committed_offset, ""))

    def get_watermark_offsets(self, _where: TopicPartition, _timeout: float) -> tuple[int, int]:
        if self.end is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 3, self.end

    def offsets_for_times(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        return partitions


@pytest.mark.rule("TN-06")
@pytest.mark.parametrize(
    ("topic", "asked", "offset", "is_made_again"),
    [
        ("flights", Asked(OFFSET_INVALID), 100, False),
        (RETRY_TOPIC, Asked(OFFSET_INVALID), 3, False),
        ("flights", Asked(2), 3, False),
        ("flights", Asked(100), 3, False),
        ("flights", Asked(101), 3, True),
        (RETRY_TOPIC, Asked(101), 3, True),
        ("flights", Asked(101, end=None), OFFSET_BEGINNING, False),
        ("flights", Asked(OFFSET_INVALID, end=None), OFFSET_END, False),
        ("flights", Asked(None), OFFSET_STORED, False),
        (RETRY_TOPIC, Asked(None), OFFSET_STORED, False),
    ],
    ids=[
        "new",
        "retry",
        "behind",
        "at the end",
        "made again",
        "retry made again",
        "nobody tells",
        "new, nobody tells",
        "no answer",
        "retry, no answer",
    ],
)
def test_where_it_starts(topic: str, asked: Asked, offset: int, *, is_made_again: bool) -> None:
    start = OffsetReset(cast("Any", asked), RETRY_TOPIC, LAST, asked.committed).start_of(topic, 0, had_none=False)
    assert (start.where.offset, start.is_made_again) == (offset, is_made_again)


@pytest.mark.parametrize(("consume_from", "as_configured"), [(LAST, 100), (MOMENT, 5_000)], ids=["last", "moment"])
def test_a_partition_that_is_seen_later_starts_at_its_beginning(consume_from: ConsumeFrom, as_configured: int) -> None:
    asked = Asked(OFFSET_INVALID)
    since = replace(consume_from, known={"flights": 1})
    reset = OffsetReset(cast("Any", asked), RETRY_TOPIC, since, asked.committed)
    assert reset.start_of("flights", 0, had_none=True).where.offset == as_configured
    assert reset.start_of("flights", 1, had_none=True).where.offset == 3
    assert reset.start_of("trains", 0, had_none=True).where.offset == 3


@pytest.mark.parametrize("topic", ["flights", RETRY_TOPIC])
def test_an_offset_that_the_coordinator_has_found_again_is_the_start(topic: str) -> None:
    asked = Asked(42)
    start = OffsetReset(cast("Any", asked), RETRY_TOPIC, LAST, asked.committed).start_of(topic, 0, had_none=True)
    assert (start.where.offset, start.is_made_again) == (42, False)
