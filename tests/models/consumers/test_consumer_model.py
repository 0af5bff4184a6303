"""A model of two members of a consumer group; hypothesis explores what may happen between them.

The members are the real ones: loop, process queues, service, sender, kept progress. Kafka is modelled by what it
promises: a commit or a transaction that carries an old generation of the group is refused, whose a partition is it does
not ask, and a transaction's send-backs and offsets become visible together or not at all. An answer may be missing.

In words, at every moment:

1. **Nothing lost.** A commit, its offset or what is kept beside it, covers a message only if a listener was done with
   it or a send-back of it is stored.
2. **Sent back.** No failure makes two send-backs. With `exactly_once` a message has one at most, whatever happens, and
   the commit covers it from the same moment on; without, who fails again after a crash or a move makes one more.
3. **Not again.** What the commit said was done when a member was given the partition it gives to no listener; nor does
   the owner of a partition what is covered now.
4. **Never back.** What a commit covers, all later ones cover. How often a message failed in its place is not forgotten.
5. **In order.** An orderly listener is given a message when those before it are done, and never while another owner of
   the partition has one of its messages.

And in the end, when nothing goes wrong any more: the commits cover everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import hypothesis.strategies as st
from confluent_kafka import KafkaError, KafkaException
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconsume.bridge.kafka.admin import Commit
from tests.models.consumers.group import NAMES, Group
from tests.models.consumers.kafka import PARTITIONS, Where
from tests.models.consumers.members import TIMEOUT_MS

LATER: Final = ["succeeds", "fails", "does the first"]
COMMITS: Final = ["is taken", "is refused", "is lost", "gets no answer"]
TRANSACTIONS: Final = [
    "is committed",
    "is aborted",
    "is refused",
    "is committed without an answer",
    "is undone without an answer",
]

names = st.sampled_from(NAMES)
partitions = st.sampled_from(PARTITIONS)
results = st.lists(st.sampled_from([*LATER, "raises", "says not now", None]), max_size=6)
"""Of listeners that are called; None goes on."""
moves: st.SearchStrategy[list[Where]] = st.just([]) | st.lists(partitions, max_size=2)
"""There and back, if it is twice the same."""


class Members(RuleBasedStateMachine):
    """Two members of a group share the partitions."""

    exactly_once: ClassVar[bool]
    orderly: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.group = Group(exactly_once=self.exactly_once, orderly=self.orderly)
        for where in PARTITIONS:
            self.all_goes_on(where, 2, 0, [])

    @rule(where=partitions, count=st.integers(1, 6), marked=st.booleans())
    def records_are_appended(self, where: Where, count: int, *, marked: bool) -> None:
        for _ in range(count):
            self.group.kafka.append(where)
        if marked:
            self.group.kafka.logs[where].append(None)

    @rule(
        where=partitions,
        count=st.integers(0, 4),
        passes=st.sampled_from([0, 1_000, 5_000]),
        results=results,
        sends=st.booleans(),
    )
    def all_goes_on(
        self, where: Where, count: int, passes: int, results: Sequence[str | None], *, sends: bool = False
    ) -> None:
        """So that there is something for the other rules to disturb."""
        for _ in range(count):
            self.group.kafka.append(where)
        for name in NAMES:
            self.group.turns(name, passes)
            self.group.calls(name, results)
            if sends:
                self.group.sends(name)

    @rule(
        name=names,
        passes=st.sampled_from([1_000, 0, 5_000, TIMEOUT_MS + 1_000]),
        fate=st.sampled_from(COMMITS),
        deaf=st.integers(0, 1),
        moves=moves,
        results=results,
    )
    def a_member_turns(
        self, name: str, passes: int, fate: str, deaf: int, moves: list[Where], results: Sequence[str | None]
    ) -> None:
        """Partitions may move between its two reads; then listeners are called."""
        client = self.group.members[name].client
        client.fate, client.deaf, client.meanwhile = [fate], deaf, partial(self._move, moves)
        self.group.turns(name, passes)
        client.fate, client.deaf, client.meanwhile = [], 0, None
        self.group.calls(name, results)

    def _move(self, moves: list[Where], turns: str = "") -> None:
        if turns:
            self.group.turns(turns, 0)
        for where in moves:
            self.group.moves(where)

    @rule(name=names, results=results)
    def listeners_are_called(self, name: str, results: list[str | None]) -> None:
        self.group.calls(name, results)

    @rule(name=names, which=st.integers(0, 3), results=st.lists(st.sampled_from(LATER), min_size=1, max_size=4))
    def listeners_come_back(self, name: str, which: int, results: list[str]) -> None:
        self.group.come_back(name, which, results)

    @rule(where=partitions, flushes=st.booleans(), left_over=st.booleans())
    def a_partition_moves(self, where: Where, *, flushes: bool, left_over: bool) -> None:
        self.group.moves(where, flushes=flushes, left_over=left_over)

    @precondition(lambda self: self.group.is_whole())
    @rule(
        name=names,
        how=st.sampled_from(["is put out", "dies", "shuts down"]),
        result=st.sampled_from(LATER),
        stored=st.integers(0, 3),
        comes_again=st.booleans(),
    )
    def a_member_goes(self, name: str, how: str, result: str, stored: int, *, comes_again: bool) -> None:
        """While the coordinator has all offsets: who knows what it has lost must live on."""
        if how == "is put out":
            self.group.is_put_out(name)
        elif how == "dies":
            self.group.dies(name, stored, comes_again=comes_again)
        else:
            self.group.shuts_down(name, result, ["is refused"])

    @precondition(lambda self: self.group.out)
    @rule()
    def who_was_put_out_learns_it(self) -> None:
        self.group.tell()

    @precondition(lambda self: self.group.is_whole())
    @rule(lost=st.booleans())
    def the_coordinator_loses_all_offsets(self, *, lost: bool) -> None:
        self.group.loses_offsets(lost=lost)

    @invariant()
    def nothing_is_lost(self) -> None:
        kafka = self.group.kafka
        for where in PARTITIONS:
            records = kafka.records(where)
            for offset in kafka.covered(where):
                assert kafka.is_done(records[offset]), records[offset]

    @invariant()
    def no_promise_was_broken(self) -> None:
        assert not self.group.kafka.broken

    @invariant()
    def no_failure_makes_two_send_backs(self) -> None:
        assert self.group.kafka.sent_back <= self.group.kafka.calls

    def judge(self) -> None:
        self.nothing_is_lost()
        self.no_promise_was_broken()
        self.no_failure_makes_two_send_backs()

    def teardown(self) -> None:
        """Nothing goes wrong any more."""
        try:
            self.finish()
        finally:
            self.group.end()

    def finish(self) -> None:
        for _ in range(20 + sum(map(len, self.group.kafka.logs.values()))):
            if self.group.is_done():
                break
            self.group.goes_well()
            self.judge()
        assert self.group.is_done()
        for name in NAMES:
            self.group.shuts_down(name, "succeeds")


class Plainly(Members):
    """Send-back first, then the commit."""

    exactly_once = False

    @rule(name=names, fates=st.lists(st.sampled_from(["is stored", "is refused"]), min_size=1, max_size=4))
    def send_backs_are_answered(self, name: str, fates: list[str]) -> None:
        self.group.answers(name, fates)


class Together(Members):
    """Send-backs and offsets in one transaction."""

    exactly_once = True

    @rule(
        name=names,
        fates=st.lists(st.sampled_from(TRANSACTIONS), min_size=1, max_size=3),
        away=st.integers(0, 2),
        before=moves,
        after=moves,
        turns=st.booleans(),
    )
    def a_sender_steps(
        self, name: str, fates: list[str], away: int, before: list[Where], after: list[Where], *, turns: bool
    ) -> None:
        """While it writes its loop turns, and partitions move."""
        first = partial(self._move, before, name if turns else "")
        self.group.transacts(name, fates, away, first, partial(self._move, after))

    @invariant()
    def a_send_back_and_its_commit_are_one(self) -> None:
        kafka = self.group.kafka
        for where in PARTITIONS:
            covered = kafka.covered(where)
            for offset, body in kafka.records(where).items():
                assert kafka.sent_back[body] <= (offset in covered), body

    def judge(self) -> None:
        super().judge()
        self.a_send_back_and_its_commit_are_one()


class PlainlyInOrder(Plainly):
    """With orderly listeners, who fail twice at most."""

    orderly = True


class TogetherInOrder(Together):
    """The same in transactions."""

    orderly = True


def test_who_is_put_out_before_it_has_restored_offsets_polls_on() -> None:
    """Trying again without a poll would go on until somebody else restores them."""
    group, where, refusals = Group(exactly_once=False, orderly=False), PARTITIONS[0], list[int]()
    client = group.members["b"].client
    for _ in range(3):
        group.kafka.append(where)
        group.turns("a")
        group.turns("b")
        group.calls("a", ["succeeds"])
    group.moves(where)

    def commit(**_: object) -> None:
        assert not refusals, "it has not polled"
        refusals.append(1)
        raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))

    def happens() -> None:
        group.members["b"].known.note({where: Commit(*group.kafka.committed[where])})
        group.kafka.told.clear()
        group.is_put_out("b")

    client.meanwhile, client.commit = happens, commit  # type: ignore[method-assign]
    group.kafka.append(where)
    group.turns("b", 0)
    assert refusals
    group.tell()
    assert client.believed == {}


for one in (Plainly, Together, PlainlyInOrder, TogetherInOrder):
    one.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestPlainly = Plainly.TestCase
TestTogether = Together.TestCase
TestPlainlyInOrder = PlainlyInOrder.TestCase
TestTogetherInOrder = TogetherInOrder.TestCase
