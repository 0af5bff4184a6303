"""Bugs that are planted in a consumer, and that its model finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from reconsume.bridge.reading.known_offsets import KnownOffsets
from reconsume.bridge.writing.exactly_once import ExactlyOnceWriter
from reconsume.consumers.assigned_partitions import AssignedPartitions
from reconsume.consumers.listeners.concurrently import ConcurrentlyService
from reconsume.consumers.listeners.orderly import OrderlyService
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.transactional_sender import TransactionalSender
from tests.models.consumers.group import Group
from tests.models.consumers.kafka import PARTITIONS
from tests.models.consumers.members import TIMEOUT_MS
from tests.models.consumers.test_consumer_model import Members, Plainly, PlainlyInOrder, Together

HERE: Final = PARTITIONS[0]
"""Of "a" in the beginning; its first two messages wait for a listener."""


def a_failure_waits_for_its_send_back(group: Group) -> None:
    group.calls("a", ["fails"])
    group.turns("a")


def a_partition_moves_with_something_done_ahead(group: Group) -> None:
    group.kafka.append(HERE)
    group.turns("a")
    group.calls("a", [None, None, "succeeds"])
    group.turns("a")
    group.moves(HERE)
    group.turns("b")
    group.calls("b", ["succeeds"] * 3)


def who_was_put_out_comes_again(group: Group) -> None:
    group.calls("a", ["succeeds"])
    group.is_put_out("a")
    group.kafka.append(HERE)
    for _ in range(3):
        group.turns("b")
        group.calls("b", ["succeeds"] * 3)
    group.tell()
    group.turns("a")


def who_was_put_out_had_something_to_send(group: Group) -> None:
    group.calls("a", ["fails"])
    group.transacts("a", ["is aborted"])
    group.is_put_out("a")
    for _ in range(2):
        group.turns("b")
        group.calls("b", ["fails"] * 3)
        group.sends("b")
    group.tell()
    group.sends("a")


def a_listener_fails_after_its_timeout(group: Group) -> None:
    group.calls("a", [None])
    group.turns("a", TIMEOUT_MS + 1_000)
    group.come_back("a", 0, ["fails"])
    group.sends("a")


def a_partition_moves_while_a_listener_works(group: Group) -> None:
    group.calls("a", [None])
    group.moves(HERE)
    for _ in range(2):
        group.turns("b")
        group.calls("b", [None] * 3)


def a_transaction_gets_no_answer(group: Group) -> None:
    group.calls("a", ["fails"])
    group.transacts("a", ["is committed without an answer"])
    group.sends("a")


def a_transaction_gets_no_answer_and_the_coordinator_loses_offsets(group: Group) -> None:
    group.calls("a", ["fails"])
    group.transacts("a", ["is committed without an answer"], away=1)
    group.loses_offsets(lost=False)


def done_before_it_is_sent(self: ConcurrentlyService, queue: ProcessQueue, message: Message, *how: Any) -> None:
    queue.finish(message)
    SEND_BACK(self, queue, message, *how)


SEND_BACK: Final = ConcurrentlyService._send_back


class Planted(NamedTuple):
    """A bug in one method, and what has to happen for it to show."""

    model: type[Members]
    happens: Callable[[Group], None]
    where: type
    method: str
    bug: Callable[..., object]


PLANTED: Final = {
    "what is to be sent back counts as done": Planted(
        Plainly, a_failure_waits_for_its_send_back, ConcurrentlyService, "_send_back", done_before_it_is_sent
    ),
    "kept progress is forgotten": Planted(
        Plainly, a_partition_moves_with_something_done_ahead, ProcessQueue, "keep", lambda *_: None
    ),
    "what was lost is committed": Planted(
        Plainly, who_was_put_out_comes_again, AssignedPartitions, "lost", lambda *_: None
    ),
    "what was lost is sent back": Planted(
        Together, who_was_put_out_had_something_to_send, TransactionalSender, "forget", lambda *_: None
    ),
    "a timeout and a failure decide both": Planted(
        Plainly,
        a_listener_fails_after_its_timeout,
        ProcessQueue,
        "take",
        lambda queue, _chunk: not queue.dropped,
    ),
    "nobody waits for a listener that works in order": Planted(
        PlainlyInOrder, a_partition_moves_while_a_listener_works, OrderlyService, "leave", lambda *_: True
    ),
    "no answer means undone": Planted(
        Together, a_transaction_gets_no_answer, ExactlyOnceWriter, "was_committed", lambda *_: False
    ),
    "a coordinator that lost offsets is believed": Planted(
        Together,
        a_transaction_gets_no_answer_and_the_coordinator_loses_offsets,
        KnownOffsets,
        "ask_once",
        lambda _known, ask, _wheres: ask([]),
    ),
}


def judged(planted: Planted) -> None:
    machine = planted.model()
    try:
        planted.happens(machine.group)
        machine.judge()
        machine.finish()
    finally:
        machine.group.end()


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_the_model_finds_a_planted_bug(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    judged(planted)
    monkeypatch.setattr(planted.where, planted.method, planted.bug)
    with pytest.raises(AssertionError):
        judged(planted)
