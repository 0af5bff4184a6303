"""What is done above the committed offset is asked for until somebody knows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from reconsume.bridge.known_offsets import KnownOffsets
from reconsume.bridge.membership import MembershipLost
from reconsume.consumers import kept_progress
from reconsume.consumers.consume_from import ConsumeFrom, ConsumeFromWhere
from reconsume.consumers.consume_loop import ConsumeLoop, Limits
from reconsume.consumers.listener_pool import Chunk
from reconsume.consumers.process_queue import Part
from reconsume.consumers.subscription import Subscriptions
from reconsume.delay_levels.errors import KafkaRefused
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.progress_metadata import encode_progress
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, message_at, service_of

LIMITS = Limits(1_000, 1_000_000, 2_000, 900_000, 10)


@dataclass
class Coordinator:
    """Answers as `Consumer.committed` does.

    Attributes:
        refusals: of the next questions; for a while nobody answers, or an offset is not stable yet.
        patience: questions until the consumer is stopped.
    """

    refusals: list[KafkaException | KafkaError]
    patience: int
    stop: threading.Event = field(default_factory=threading.Event)
    asked: int = 0

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        self.asked += 1
        if self.asked == self.patience:
            self.stop.set()
        refusal = self.refusals.pop(0) if self.refusals else None
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


def begun_after(refusals: Sequence[KafkaException | KafkaError], patience: int = 99) -> tuple[list[int], int]:
    """The offsets of 5 to 8 that are begun, and how often the question was asked."""
    coordinator = Coordinator(list(refusals), patience)
    begun: list[int] = []
    service = service_of(lambda _messages, _context: None, RecordingWriter(), Clock())
    service.attach(cast("Any", Begun(begun)))
    loop = ConsumeLoop(
        cast("Any", coordinator),
        service,
        RecordingWriter(),
        retry_topic=RETRY_TOPIC,
        subscriptions=Subscriptions(TopicNames()),
        consume_from=ConsumeFrom(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        known=KnownOffsets(lambda _topics: {}),
        limits=LIMITS,
    )
    loop._stop = coordinator.stop
    loop._assigned(cast("Any", coordinator), [TopicPartition("flights", 0)])
    for first in (5, 7):
        loop._hand_out(loop._queues["flights", 0], [message_at(first), message_at(first + 1)])
    return begun, coordinator.asked


@dataclass
class Begun:
    """A pool that calls no listener."""

    offsets: list[int]

    def submit(self, chunk: Chunk) -> None:
        self.offsets += [message.kafka.offset for message in chunk.messages]

    def submit_all(self, parts: Iterator[Part]) -> None:
        self.offsets += [message.kafka.offset for part in parts for message in part]


TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("refusals", [[], [TIMED_OUT, UNSTABLE, TIMED_OUT]])
def test_it_is_asked_with_the_first_message_until_somebody_knows(refusals: list[KafkaException | KafkaError]) -> None:
    assert begun_after(refusals) == ([5, 6, 8], len(refusals) + 1)


def test_without_a_right_the_consumer_ends() -> None:
    with pytest.raises(KafkaRefused, match="no right to use the consumer group"):
        begun_after([KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))])


def test_a_shutdown_ends_the_asking_and_nothing_is_begun_then() -> None:
    assert begun_after([TIMED_OUT] * 9, patience=2) == ([], 2)


def test_a_consumer_that_nobody_tells_for_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_progress, "_GIVE_UP_SECONDS", -1.0)
    with pytest.raises(MembershipLost, match="Timed out"):
        begun_after([TIMED_OUT])
    assert begun_after([]) == ([5, 6, 8], 1)
