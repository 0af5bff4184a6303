"""The reader of withdrawals while WITHDRAWN cannot be used."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.scheduler.withdrawals import withdrawals_reader
from reconsume.bridge.scheduler.withdrawals.withdrawals_reader import WithdrawalsReader
from reconsume.delay_levels.errors import KafkaRefused
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.withdrawals import Withdrawals

NAMES = TopicNames()


@dataclass
class Cluster:
    """A cluster with CANCEL, whose WITHDRAWN is missing, refused or there.

    Attributes:
        withdrawn: its number of partitions, or the error of the question; None if it does not exist.
        asked: how often it was looked up.
    """

    withdrawn: int | KafkaRefused | None = None
    asked: int = 0

    def partitions(self, topics: Collection[str]) -> dict[str, int]:
        if NAMES.withdrawn not in topics:
            return dict.fromkeys(topics, 1)
        self.asked += 1
        if isinstance(self.withdrawn, KafkaRefused):
            raise self.withdrawn
        return {} if self.withdrawn is None else {NAMES.withdrawn: self.withdrawn}

    def end_offsets(self, partitions: list[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")


@dataclass
class Tail:
    """Reads nothing."""

    followed: list[Partition] = field(default_factory=list)

    def follow(self, starts: Mapping[Partition, int | None]) -> None:
        self.followed += starts

    def leave(self, topic: str) -> None: ...

    def read(self, _seconds: float) -> Iterator[Any]:
        return iter(())

    def close(self) -> None: ...


class Without:
    """A reader that works without WITHDRAWN, and its time in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
        self.cluster, self.now = cluster, 0.0
        monkeypatch.setattr(withdrawals_reader, "TailReader", lambda *_: Tail())
        monkeypatch.setattr(withdrawals_reader, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.reader = WithdrawalsReader({}, NAMES, Withdrawals(), lambda: 0.0)
        self.reader.start(cast("Any", cluster), threading.Event())
        self.cluster.asked = 0

    def is_over(self) -> bool:
        return self.reader.is_over(cast("Any", self.cluster))


@pytest.mark.parametrize("withdrawn", [None, KafkaRefused("no right")], ids=["missing", "refused"])
def test_it_goes_on_while_a_new_reader_would_read_all_of_cancel_again(
    withdrawn: KafkaRefused | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = Without(monkeypatch, Cluster(withdrawn))
    for after, asked in ((599, 0), (600, 1), (1_199, 1), (1_200, 2)):
        without.now = after
        assert not without.is_over()
        assert without.cluster.asked == asked


def test_it_is_over_when_the_topic_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    without = Without(monkeypatch, Cluster())
    without.cluster.withdrawn, without.now = 1, 599
    assert not without.is_over()
    without.now = 600
    assert without.is_over()
