"""What a refusal without a topic does to a reader of ranges, which a broker gives to who lacks the right to a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.reading import range_reader
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import KafkaRefused

WHERE = ("flights", 0)


class Given:
    """A message, or an error in its place; confluent-kafka's own cannot hold an error."""

    def __init__(self, topic: str | None, code: int | None = None) -> None:
        self._topic, self._code = topic, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def topic(self) -> str | None:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeReader]:
    """Reads a refusal of its group, then the record that it wants."""
    consumer = MagicMock()
    consumer.poll.side_effect = [Given(None, KafkaError.GROUP_AUTHORIZATION_FAILED), Given("flights")]
    consumer.consume.return_value = []
    monkeypatch.setattr(range_reader, "GroupConsumer", lambda _settings: consumer)
    with RangeReader({"bootstrap.servers": "127.0.0.1:1"}, "ranges") as one:
        yield one


def test_who_takes_what_can_be_read_is_told_of_partitions_alone(reader: RangeReader) -> None:
    told: list[Partition] = []
    read = list(reader.read({WHERE: (0, 1)}, within_seconds=30, on_refusal=lambda where, _error: told.append(where)))
    assert [cast("Any", one).topic() for one in read] == ["flights"]
    assert (told, reader.unread) == ([], {})


def test_who_needs_all_of_it_has_the_error(reader: RangeReader) -> None:
    messages: Iterator[PolledRecord] = reader.read({WHERE: (0, 1)})
    with pytest.raises(KafkaRefused, match="reading topic flights"):
        next(messages)
