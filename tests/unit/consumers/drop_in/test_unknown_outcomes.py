"""Send-backs with their offsets whose transaction gets no answer, beside offsets that the program has committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import Commit, Partition
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter, Failed, Offsets, OutcomeUnknown
from reconsume.consumers.drop_in.send_back_client import SendBackClient
from reconsume.consumers.drop_in.settings import DropInSettings
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import KafkaNotReachable, PartitionLost
from tests.unit.consumers.drop_in.test_prepare import OURS

HERE, THERE = ("flights", 0), ("flights", 1)


class Writer(ExactlyOnceWriter):
    """A writer whose first transaction gets no answer.

    Args:
        committed: the offsets of the group after it.
    """

    def __init__(self, committed: Mapping[Partition, int]) -> None:
        self._group = "departures"
        self._was_shut_out = False
        self.committed = committed
        self.written: list[list[bytes | str | None]] = []

    def send_back(self, failed: Sequence[Failed], offsets: Offsets, group_metadata: Any) -> None:
        assert group_metadata == "metadata"
        self.written.append([one.value for one in failed])
        if len(self.written) == 1:
            raise OutcomeUnknown(offsets, KafkaNotReachable("no answer"))

    def _started(self, seconds: float = 0) -> None:
        """There is no producer."""

    def _commits(self, partitions: Collection[Partition]) -> dict[Partition, Commit]:
        return {where: Commit(self.committed[where], "") for where in partitions if where in self.committed}


def sent_back(
    monkeypatch: pytest.MonkeyPatch, failed: Sequence[Message], ends: Mapping[Partition, int], writer: Writer
) -> list[list[bytes | str | None]]:
    client = SendBackClient(DropInSettings.of([{"group.id": "departures"}], {}, OURS))
    monkeypatch.setattr(client, "_groups", Groups)
    monkeypatch.setattr(client, "_transactional_writer", lambda: writer)
    offsets = {where: Commit(end, "") for where, end in ends.items()}
    client.send_back_exactly_once(failed, 0, None, offsets, lambda: "metadata")
    return writer.written


def message(where: Partition, offset: int) -> Message:
    polled = KafkaMessage(topic=where[0], partition=where[1], offset=offset, value=b"%d@%d" % (where[1], offset))
    return Message(polled, "retries")


D = message(THERE, 1)


def test_what_the_program_has_committed_itself_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has committed the successful messages of one partition, as the docs say."""
    assert sent_back(monkeypatch, [D], {HERE: 2, THERE: 2}, Writer({HERE: 2})) == [[b"1@1"], [b"1@1"]]


def test_a_transaction_that_counts_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent_back(monkeypatch, [D], {HERE: 2, THERE: 2}, Writer({HERE: 2, THERE: 2})) == [[b"1@1"]]


def test_a_partition_that_another_member_has_passed_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PartitionLost, match="another member has committed"):
        sent_back(monkeypatch, [message(HERE, 1), D], {HERE: 2, THERE: 2}, Writer({HERE: 2}))


def test_offsets_alone_are_committed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the list succeeded, and the program has committed one of its partitions itself."""
    assert sent_back(monkeypatch, [], {HERE: 2, THERE: 2}, Writer({HERE: 2})) == [[], []]
