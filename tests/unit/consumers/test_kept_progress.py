"""What is done above the committed offset is asked for until somebody knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.consumers.consume_loop import ConsumeLoop, Limits
from reconsume.delay_levels.progress_metadata import encode_progress
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, message_at, service_of

LIMITS = Limits(1_000, 1_000_000, 2_000, 900_000, 10, leave_seconds=4)


@dataclass
class Coordinator:
    """Answers as `Consumer.committed` does; each refusal takes a second.

    Attributes:
        refusals: of the next questions; for a while nobody answers, or an offset is not stable yet.
    """

    clock: Clock
    refusals: list[KafkaException | KafkaError] = field(default_factory=list)
    asked: int = 0

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked += 1
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            self.clock.now += 1_000
        if isinstance(refusal, KafkaException):
            raise refusal
        return [Answer(one.topic, one.partition, refusal) for one in partitions]


class Answer(TopicPartition):
    """Offset 5 is committed, and 7 is done; or an error, which cannot be set on a real one."""

    def __init__(self, topic: str, partition: int, refusal: KafkaError | None) -> None:
        super().__init__(topic, partition, 5, encode_progress(5, [7], {}))
        self.refusal = refusal

    @property
    def error(self) -> KafkaError | None:  # type: ignore[override]
        return self.refusal


def begun_after(refusals: list[KafkaException | KafkaError]) -> tuple[list[int], int]:
    """The offsets of 5 to 8 that are begun, and how often the question was asked."""
    clock = Clock()
    coordinator = Coordinator(clock, refusals)
    loop = ConsumeLoop(
        cast("Any", coordinator),
        service_of(lambda _messages, _context: None, RecordingWriter(), clock),
        RecordingWriter(),
        retry_topic=RETRY_TOPIC,
        subscriptions={},
        from_beginning=True,
        limits=LIMITS,
        clock=clock,
    )
    loop._assigned(cast("Any", coordinator), [TopicPartition("flights", 0)])
    queue = loop._queues["flights", 0]
    return [one.kafka.offset for one in queue.begin([message_at(offset) for offset in range(5, 9)])], coordinator.asked


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


def test_it_is_asked_again_while_nobody_can_tell() -> None:
    assert begun_after([]) == ([5, 6, 8], 1)
    assert begun_after([TIMED_OUT, UNSTABLE]) == ([5, 6, 8], 3)


def test_not_for_so_long_that_the_membership_is_lost() -> None:
    assert begun_after([TIMED_OUT] * 9) == ([5, 6, 7, 8], 4)


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_not_when_the_partition_is_gone_or_there_is_no_right(code: int) -> None:
    assert begun_after([KafkaException(KafkaError(code))]) == ([5, 6, 7, 8], 1)
