"""Where the retry topic starts, as a function of what is committed and what is kept."""

from __future__ import annotations

import threading

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

from reconsume.consumers.drop_in.retry_start import with_retry_starts

RETRY = "reconsume.RETRY.departures"


def starts(partitions: list[TopicPartition], committed: int, first: int = 3) -> list[tuple[str, int, int]]:
    found = with_retry_starts(
        partitions,
        RETRY,
        lambda asked, _seconds: [TopicPartition(one.topic, one.partition, committed) for one in asked],
        lambda asked, _seconds: [TopicPartition(one.topic, one.partition, first) for one in asked],
        threading.Event(),
    )
    return [(one.topic, one.partition, one.offset) for one in found]


@pytest.mark.rule("TN-06")
@pytest.mark.parametrize(
    ("committed", "start"),
    [(OFFSET_INVALID, 3), (2, 3), (3, OFFSET_INVALID), (50, OFFSET_INVALID)],
    ids=["none", "no longer kept", "the first", "in the middle"],
)
@pytest.mark.parametrize("given", [OFFSET_INVALID, OFFSET_STORED])
def test_a_retry_partition_without_an_offset_to_go_on_from_starts_at_its_first(
    given: int, committed: int, start: int
) -> None:
    partitions = [TopicPartition("flights", 0), TopicPartition(RETRY, 0, given), TopicPartition(RETRY, 1, given)]
    assert starts(partitions, committed) == [("flights", 0, OFFSET_INVALID), (RETRY, 0, start), (RETRY, 1, start)]


@pytest.mark.parametrize("chosen", [7, OFFSET_BEGINNING, OFFSET_END])
def test_an_offset_that_the_user_chose_holds(chosen: int) -> None:
    assert starts([TopicPartition(RETRY, 0, chosen)], OFFSET_INVALID) == [(RETRY, 0, chosen)]


def test_what_passes_is_asked_again_and_a_refusal_is_raised() -> None:
    errors = [KafkaError(KafkaError._TIMED_OUT), KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)]

    def committed(_asked: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        raise KafkaException(errors.pop(0))

    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        with_retry_starts([TopicPartition(RETRY, 0)], RETRY, committed, lambda _asked, _seconds: [], threading.Event())
    assert errors == []


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._DESTROY])
def test_a_consumer_that_closes_meanwhile_keeps_its_assignment_as_it_came(code: int) -> None:
    """A group that has ended answers nothing."""
    closing, given = threading.Event(), [TopicPartition("flights", 0), TopicPartition(RETRY, 0)]

    def committed(_asked: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        assert not closing.is_set(), "asked again"
        closing.set()
        raise KafkaException(KafkaError(code))

    for _ in range(2):
        assert with_retry_starts(given, RETRY, committed, lambda _asked, _seconds: [], closing) == given
