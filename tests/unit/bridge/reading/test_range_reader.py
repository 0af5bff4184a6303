"""A reader of ranges: a refusal without a topic (the right to the group is missing), and silence of a partition."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock, call

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.reading import range_reader
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused

WHERE = ("flights", 0)


class Given:
    """A message, or an error in its place; confluent-kafka's own cannot hold an error."""

    def __init__(self, topic: str | None, code: int | None = None, *, partition: int = 0, offset: int = 0) -> None:
        self._topic, self._code = topic, code
        self._partition, self._offset = partition, offset

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """The consumer of the readers of a test; it has nothing beside what its polls give."""
    one = MagicMock()
    one.consume.return_value = []
    monkeypatch.setattr(range_reader, "GroupConsumer", lambda _settings: one)
    return one


@pytest.fixture
def reader(consumer: MagicMock) -> Iterator[RangeReader]:
    """Reads a refusal of its group, then the record that it wants."""
    consumer.poll.side_effect = [Given(None, KafkaError.GROUP_AUTHORIZATION_FAILED), Given("flights")]
    with RangeReader({"bootstrap.servers": "127.0.0.1:1"}, "ranges") as one:
        yield one


@pytest.fixture
def impatient(consumer: MagicMock) -> Iterator[RangeReader]:
    """A reader that waits for 0.3 s; nothing comes unless the test says so."""
    consumer.poll.return_value = None
    with RangeReader({"bootstrap.servers": "127.0.0.1:1"}, "ranges", seconds=0.3) as one:
        yield one


def with_traffic(consumer: MagicMock, code: int | None = None) -> None:
    """Let the consumer give a record or an error of partition 0 every 0.1 s, for 5 s."""

    def poll(_seconds: float) -> Given:
        assert time.monotonic() < until, "the reader still waits"
        time.sleep(0.1)
        return Given("flights", code, offset=consumer.poll.call_count - 1)

    until = time.monotonic() + 5
    consumer.poll.side_effect = poll


def test_who_takes_what_can_be_read_is_told_of_partitions_alone(reader: RangeReader) -> None:
    told: list[Partition] = []
    read = list(reader.read({WHERE: (0, 1)}, within_seconds=30, on_refusal=lambda where, _error: told.append(where)))
    assert [cast("Any", one).topic() for one in read] == ["flights"]
    assert (told, reader.unread) == ([], {})


def test_who_needs_all_of_it_has_the_error(reader: RangeReader) -> None:
    messages: Iterator[PolledRecord] = reader.read({WHERE: (0, 1)})
    with pytest.raises(KafkaRefused, match="reading topic flights"):
        next(messages)


def test_traffic_of_a_finished_partition_does_not_hide_the_silence_of_another(
    consumer: MagicMock, impatient: RangeReader
) -> None:
    with_traffic(consumer)
    read = impatient.read({WHERE: (0, 1), ("flights", 1): (0, 1)})
    assert cast("Any", next(read)).offset() == 0
    with pytest.raises(KafkaNotReachable, match=r"nothing came within 0\.3 s"):
        next(read)
    assert impatient.unread == {("flights", 1): 1}


def test_errors_of_a_refused_partition_do_not_hide_the_silence_of_another(
    consumer: MagicMock, impatient: RangeReader
) -> None:
    with_traffic(consumer, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    told: list[Partition] = []
    ranges = {WHERE: (0, 1), ("flights", 1): (0, 1)}
    with pytest.raises(KafkaNotReachable, match=r"nothing came within 0\.3 s"):
        next(impatient.read(ranges, on_refusal=lambda where, _error: told.append(where)))
    assert told == [WHERE]


def test_a_record_in_time_is_no_silence_however_long_its_caller_takes(
    consumer: MagicMock, impatient: RangeReader
) -> None:
    consumer.poll.side_effect = [Given("flights"), None, Given("flights", offset=1)]
    offsets = []
    for message in impatient.read({WHERE: (0, 2)}):
        offsets.append(message.offset())
        time.sleep(0.4)
    assert offsets == [0, 1]


def test_a_finished_partition_is_paused_until_the_next_read(consumer: MagicMock, impatient: RangeReader) -> None:
    other = "flights", 1
    consumer.poll.side_effect = [
        Given("flights"),
        Given("flights", partition=1),
        Given("flights", partition=1, offset=1),
        Given("flights", offset=1),
    ]
    assert len(list(impatient.read({WHERE: (0, 1), other: (0, 2)}))) == 3
    assert len(list(impatient.read({WHERE: (1, 2)}))) == 1
    changes = [one for one in consumer.mock_calls if one[0] in ("read_only", "pause", "resume")]
    # An assignment of librdkafka does not resume, and a resume after it delays the first fetch.
    assert changes[-4:] == [
        call.read_only({WHERE: 0, other: 0}),
        call.pause([WHERE]),
        call.resume({WHERE}),
        call.read_only({WHERE: 1}),
    ]
