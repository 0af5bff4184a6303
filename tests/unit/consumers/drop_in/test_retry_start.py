"""Where the retry topic starts, as a function of what is committed, what is kept and who answers."""

from __future__ import annotations

import threading
from collections.abc import Callable

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

from reconsume.consumers.drop_in.retry_start import RetryStarts

RETRY = "reconsume.RETRY.departures"

Asked = list[TopicPartition]


class SetClock(threading.Event):
    """A clock that waiting sets, in place of the event of a closing consumer."""

    now_ms = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now_ms += (timeout or 0.0) * 1000
        return self.is_set()

    def __call__(self) -> float:
        return self.now_ms


def refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def offsets(committed: int) -> Callable[[Asked, float], Asked]:
    """Answers each request with this offset."""
    return lambda asked, _seconds: [TopicPartition(one.topic, one.partition, committed) for one in asked]


class Cluster:
    """Answers of a cluster: each partition has the committed offset, and its first record at 3.

    Args:
        committed: the committed offset.
        codes: the error of each partition's leader.
    """

    def __init__(self, committed: int, codes: dict[int, int] | None = None) -> None:
        self.codes = codes or {}
        self.asked: list[int] = []
        self.sought: list[tuple[int, int]] = []
        self.clock = SetClock()
        self.starts = RetryStarts(RETRY, offsets(committed), self._first, self._seek, self.clock)
        self.starts._clock = self.clock

    def _first(self, asked: Asked, seconds: float) -> Asked:
        [one] = asked
        self.asked.append(one.partition)
        if (code := self.codes.get(one.partition)) is not None:
            self.clock.wait(seconds if code == KafkaError._TIMED_OUT else 0)
            raise refused(code)
        return offsets(3)(asked, seconds)

    def _seek(self, to: TopicPartition) -> None:
        self.sought.append((to.partition, to.offset))

    def started(self, *partitions: TopicPartition) -> list[tuple[str, int, int]]:
        return [(one.topic, one.partition, one.offset) for one in self.starts.started([*partitions])]


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
    expected = [("flights", 0, OFFSET_INVALID), (RETRY, 0, start), (RETRY, 1, start)]
    assert Cluster(committed).started(*partitions) == expected


@pytest.mark.parametrize("chosen", [7, OFFSET_BEGINNING, OFFSET_END])
def test_an_offset_that_the_user_chose_holds(chosen: int) -> None:
    assert Cluster(OFFSET_INVALID).started(TopicPartition(RETRY, 0, chosen)) == [(RETRY, 0, chosen)]


AWAY = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._TIMED_OUT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
)


@pytest.mark.rule("TN-06")
@pytest.mark.parametrize("code", AWAY)
@pytest.mark.parametrize(("committed", "start"), [(OFFSET_INVALID, OFFSET_BEGINNING), (50, OFFSET_INVALID)])
def test_a_partition_whose_leader_is_away_holds_the_others_up_briefly_and_skips_nothing(
    code: int, committed: int, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(committed, {0: code})
    other = 3 if committed < 0 else OFFSET_INVALID
    assert cluster.started(TopicPartition(RETRY, 0), TopicPartition(RETRY, 1)) == [(RETRY, 0, start), (RETRY, 1, other)]
    assert cluster.asked.count(0) > 3
    assert cluster.asked.count(1) == 1
    assert 10_000 <= cluster.clock.now_ms < 13_000
    assert cluster.starts.refusals == []
    assert f"looking where {RETRY}-0 begins" in caplog.text


@pytest.mark.rule("TN-06")
@pytest.mark.parametrize("code", AWAY)
def test_a_leader_that_comes_back_in_time_tells_the_first_record(code: int) -> None:
    cluster = Cluster(OFFSET_INVALID, {0: code})
    wait = cluster.clock.wait

    def back(timeout: float | None = None) -> bool:
        cluster.codes.pop(0, None) if cluster.asked.count(0) > 2 else None
        return wait(timeout)

    cluster.clock.wait = back  # type: ignore[method-assign]
    assert cluster.started(TopicPartition(RETRY, 0)) == [(RETRY, 0, 3)]
    assert cluster.starts.unconfirmed == set()


@pytest.mark.parametrize("committed", [OFFSET_INVALID, 50])
def test_a_refusal_is_kept_and_holds_nothing_up(committed: int) -> None:
    cluster = Cluster(committed, dict.fromkeys(range(3), KafkaError.TOPIC_AUTHORIZATION_FAILED))
    start = OFFSET_BEGINNING if committed < 0 else OFFSET_INVALID
    found = cluster.started(*(TopicPartition(RETRY, one) for one in range(3)))
    assert found == [(RETRY, one, start) for one in range(3)]
    assert [one.args[0].code() for one in cluster.starts.refusals] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert cluster.clock.now_ms == 0


def test_committed_offsets_are_awaited_and_a_refusal_of_them_skips_nothing() -> None:
    cluster = Cluster(OFFSET_INVALID)
    codes = [KafkaError._TIMED_OUT] * 100 + [KafkaError.GROUP_AUTHORIZATION_FAILED]

    def committed(_asked: Asked, _seconds: float) -> Asked:
        raise refused(codes.pop(0))

    cluster.starts._committed = committed
    assert cluster.started(TopicPartition(RETRY, 0)) == [(RETRY, 0, 3)]
    assert codes == []
    assert [one.args[0].code() for one in cluster.starts.refusals] == [KafkaError.GROUP_AUTHORIZATION_FAILED]


@pytest.mark.rule("TN-06")
def test_after_an_error_at_the_logical_beginning_it_starts_there_again_until_something_has_arrived() -> None:
    cluster = Cluster(OFFSET_INVALID, {0: KafkaError._UNKNOWN_PARTITION, 1: KafkaError._UNKNOWN_PARTITION})
    cluster.started(*(TopicPartition(RETRY, one) for one in range(3)))
    for _ in range(2):
        cluster.starts.failed(0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    cluster.starts.failed(2, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert cluster.sought == [(0, OFFSET_BEGINNING)] * 2
    for code in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
        cluster.starts.failed(1, KafkaError(code))
    assert len(cluster.sought) == 2, "it has been read to its end"
    cluster.codes.clear()
    cluster.started(TopicPartition(RETRY, 0))
    cluster.starts.failed(0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert len(cluster.sought) == 2, "its leader has told where it begins"


def test_a_refused_seek_ends_no_poll(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(OFFSET_INVALID, {0: KafkaError._UNKNOWN_PARTITION})
    cluster.started(TopicPartition(RETRY, 0))

    def seek(_to: TopicPartition) -> None:
        raise refused(KafkaError._STATE)

    cluster.starts._seek = seek
    cluster.starts.failed(0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert f"starting {RETRY}-0 at its beginning again" in caplog.text


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._DESTROY])
@pytest.mark.parametrize("step", ["_committed", "_offsets_for_times"])
def test_a_consumer_that_closes_meanwhile_keeps_its_assignment_as_it_came(step: str, code: int) -> None:
    """A group that has ended answers nothing."""
    cluster, given = Cluster(OFFSET_INVALID), [TopicPartition("flights", 0), TopicPartition(RETRY, 0)]

    def asked(_asked: Asked, _seconds: float) -> Asked:
        assert not cluster.clock.is_set(), "asked again"
        cluster.clock.set()
        raise refused(code)

    setattr(cluster.starts, step, asked)
    for _ in range(2):
        assert cluster.starts.started(given) == given
    assert cluster.starts.refusals == []
