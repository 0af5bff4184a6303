"""A model of the members of a consumer group; hypothesis explores what may happen between them.

The members are the real ones: loop, process queues, service, sender, kept progress. Kafka is modelled by what it
promises: a commit or a transaction that carries an old generation of the group is refused, whose a partition is it does
not ask, and a transaction's send-backs and offsets become visible together or not at all.

In words, at every moment:

1. **Nothing lost.** A commit, its offset or what is kept beside it, covers a message only if a listener was done with
   it or a send-back of it is stored.
2. **Sent back.** No failure makes two send-backs. With `exactly_once` a message has one at most, whatever happens, and
   the commit covers it from the same moment on; without, a crash or a move may make one more.
3. **Not again.** What the commit said was done when a member was given the partition it gives to no listener; nor does
   the owner of a partition what is covered now.
4. **Never back.** What a commit covers, all later ones cover.

And in the end, when nothing goes wrong any more: the commits cover everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import hypothesis.strategies as st
import pytest
from confluent_kafka import TopicPartition
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reconsume.consumers.consume_loop import ConsumeLoop
from reconsume.consumers.process_queue import ProcessQueue
from reconsume.consumers.senders import PlainSender
from reconsume.consumers.transactional_sender import TransactionalSender
from tests.unit.consumers.model_kafka import PARTITIONS, Kafka, Where
from tests.unit.consumers.model_members import TIMEOUT_MS, Member, SendBacks, SteppedSender, Transactions

NAMES: Final = ("a", "b", "c")
LONGEST_END: Final = 40
"""Turns until everything is done, when nothing goes wrong."""
AT_ONCE: Final = ["succeeds", "fails", "raises", "does the first", "says not now"]
LATER: Final = ["succeeds", "fails", "does the first"]

names = st.sampled_from(NAMES)
partitions = st.sampled_from(PARTITIONS)
maybe_partitions = st.none() | partitions


class Members(RuleBasedStateMachine):
    """Three members of a group share the partitions.

    Attributes:
        owners: whose a partition is, by what the group's coordinator says.
        out: who was put out of the group and does not know.
    """

    exactly_once: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.kafka = Kafka()
        self.members: dict[str, Member] = {}
        self.owners: dict[Where, str] = {}
        self.out: set[str] = set()
        for name in NAMES:
            self._start(name)
        self._rebalance()
        for name, where in zip(NAMES, PARTITIONS, strict=True):
            self._give([where], name)

    def _start(self, name: str) -> None:
        self.members[name] = Member(self.kafka, exactly_once=self.exactly_once)

    def _rebalance(self) -> None:
        """A new generation, of which all members know but those who were put out."""
        self.kafka.generation += 1
        for name in self._present():
            self.members[name].client.generation = self.kafka.generation

    def _present(self) -> list[str]:
        return [name for name in NAMES if name not in self.out]

    def _give(self, wheres: list[Where], name: str, left_over: int | None = None) -> None:
        for where in wheres:
            self.owners[where] = name
        old = [self.kafka.logs[where][left_over] for where in wheres if left_over is not None]
        self.members[name].client.assign(wheres, [one for one in old if one is not None])

    def _owned(self, name: str) -> list[Where]:
        return [where for where, owner in self.owners.items() if owner == name]

    def _is_whole(self) -> bool:
        """Whether the coordinator has all offsets: who knows what it has lost must live on."""
        return self.kafka.told == self.kafka.committed

    @rule(where=partitions, count=st.integers(1, 4), marked=st.booleans())
    def records_are_appended(self, where: Where, count: int, *, marked: bool) -> None:
        for _ in range(count):
            self.kafka.append(where)
        if marked:
            self.kafka.logs[where].append(None)

    @rule(passes=st.sampled_from([100, 1_000, 5_000, TIMEOUT_MS + 1_000]))
    def time_passes(self, passes: int) -> None:
        self.kafka.now += passes

    @rule(
        name=names,
        fate=st.sampled_from(["is taken", "is refused", "is lost", "gets no answer"]),
        deaf=st.integers(0, 1),
        moves=maybe_partitions,
    )
    def a_member_turns(self, name: str, fate: str, deaf: int, moves: Where | None) -> None:
        """A partition may move between its two reads; what fails of a commit is the last one of the turn."""
        client = self.members[name].client
        client.fate, client.deaf, client.meanwhile = [fate], deaf, self._move(moves)
        self.members[name].loop.run_once()
        client.fate, client.deaf, client.meanwhile = [], 0, None

    def _move(self, where: Where | None) -> Callable[[], None] | None:
        return None if where is None else lambda: self._moves(where)

    @rule(name=names, result=st.sampled_from(AT_ONCE))
    def a_listener_is_called(self, name: str, result: str) -> None:
        self._call(name, result)

    @rule(name=names)
    def a_listener_begins(self, name: str) -> None:
        self._call(name, None)

    def _call(self, name: str, result: str | None) -> None:
        member = self.members[name]
        if member.calls.waiting:
            member.calls.call(member.service, result)

    @rule(name=names, which=st.integers(0, 3), result=st.sampled_from(LATER))
    def a_listener_comes_back(self, name: str, which: int, result: str) -> None:
        if self.members[name].calls.running:
            self.members[name].calls.come_back(which, result)

    @rule(where=partitions, flushes=st.booleans(), to=st.integers(0, 1), left_over=st.booleans())
    def a_partition_moves(self, where: Where, to: int, *, flushes: bool, left_over: bool) -> None:
        """In order: its owner gives it back first."""
        self._moves(where, to, flushes=flushes, left_over=left_over)

    def _moves(self, where: Where, to: int = 0, *, flushes: bool = True, left_over: bool = False) -> None:
        old = self.owners[where]
        others = [name for name in self._present() if name != old]
        if not others:
            return
        writer = self.members[old].writer
        if isinstance(writer, SendBacks):
            writer.flushes = flushes
        self.members[old].client.give_back([where])
        if isinstance(writer, SendBacks):
            writer.flushes = True
        self._rebalance()
        offset = self.kafka.committed.get(where, (0, ""))[0]
        self._give([where], others[to % len(others)], 0 if left_over and offset else None)

    @precondition(lambda self: len(self._present()) > 1 and self._is_whole())
    @rule(name=names)
    def a_member_is_put_out(self, name: str) -> None:
        """It goes on with what it has, as a process that was stopped does."""
        if name in self.out or len(self._present()) == 1:
            return
        self.out.add(name)
        self._pass_on(name)

    def _pass_on(self, name: str) -> None:
        """What it had goes to the next ones."""
        self._rebalance()
        heirs = [one for one in self._present() if one != name]
        for place, where in enumerate(self._owned(name)):
            self._give([where], heirs[place % len(heirs)])

    @precondition(lambda self: self.out)
    @rule()
    def who_was_put_out_learns_it(self) -> None:
        self._tell()

    def _tell(self) -> None:
        for name in sorted(self.out):
            client = self.members[name].client
            client.give_back(list(client.believed), lost=True)
            self.out.remove(name)
            self._rebalance()

    @precondition(_is_whole)
    @rule(name=names, stored=st.integers(0, 3), heirs=st.booleans())
    def a_member_dies(self, name: str, stored: int, *, heirs: bool) -> None:
        """What was on its way to Kafka may arrive. The next one of that name has nothing, or what it had."""
        dead = self.members[name]
        dead.client.alive = False
        if isinstance(dead.writer, SendBacks):
            for body, _ in dead.writer.waiting[:stored]:
                self.kafka.sent_back[body] += 1
        while dead.calls.running:
            dead.calls.come_back(0, "fails")
        self.out.discard(name)
        self._start(name)
        if heirs and len(self._present()) > 1:
            self._pass_on(name)
        else:
            self._rebalance()
            self._give(self._owned(name), name)

    @precondition(_is_whole)
    @rule(name=names, result=st.sampled_from(LATER), fate=st.sampled_from(["is refused", "is taken"]))
    def a_member_shuts_down(self, name: str, result: str, fate: str) -> None:
        """In each of its polls a listener comes back; one that was put out learns it then."""
        member = self.members[name]
        member.client.fate = [fate]

        def polls() -> None:
            if name in self.out:
                self._tell()
            if member.calls.running:
                member.calls.come_back(0, result)

        member.client.on_poll = polls
        member.loop.finish()
        member.loop.end()
        self._start(name)
        if len(self._present()) > 1:
            self._pass_on(name)
        else:
            self._rebalance()
            self._give(self._owned(name), name)

    @precondition(_is_whole)
    @rule(lost=st.booleans())
    def the_coordinator_loses_all_offsets(self, *, lost: bool) -> None:
        """Right after the members have asked for them; the group is gone too, and its partitions move."""
        self._tell()
        commits = [TopicPartition(*one, *at) for one, at in self.kafka.committed.items()]
        for member in self.members.values():
            member.client.answer()
            member.known.note(commits)
        self.kafka.told.clear()
        owners = dict(self.owners)
        for where, name in owners.items():
            self.members[name].client.give_back([where], lost=lost)
        self._rebalance()
        for where, name in owners.items():
            self._give([where], NAMES[(NAMES.index(name) + 1) % len(NAMES)])

    @invariant()
    def nothing_is_lost(self) -> None:
        for where in PARTITIONS:
            records = self.kafka.records(where)
            for offset in self.kafka.covered(where):
                body = records[offset]
                assert body in self.kafka.succeeded or self.kafka.sent_back[body], body

    @invariant()
    def what_was_promised_was_kept(self) -> None:
        assert not self.kafka.broken

    @invariant()
    def no_failure_makes_two_send_backs(self) -> None:
        assert self.kafka.sent_back <= self.kafka.calls

    def teardown(self) -> None:
        """Nothing goes wrong any more."""
        self._tell()
        for _ in range(LONGEST_END):
            if all(self.kafka.covered(where) == set(self.kafka.records(where)) for where in PARTITIONS):
                break
            self.kafka.now += 5_000
            for name in NAMES:
                self._go_well(name)
            self.nothing_is_lost()
            self.what_was_promised_was_kept()
        for where in PARTITIONS:
            assert self.kafka.covered(where) == set(self.kafka.records(where)), where
        for member in self.members.values():
            member.client.on_poll = lambda calls=member.calls: calls.running and calls.come_back(0, "succeeds")
            member.loop.finish()
            member.loop.end()

    def _go_well(self, name: str) -> None:
        member = self.members[name]
        member.loop.run_once()
        while member.calls.waiting:
            member.calls.call(member.service, "succeeds")
        while member.calls.running:
            member.calls.come_back(0, "succeeds")


class Plainly(Members):
    """Send-back first, then the commit."""

    exactly_once = False

    @rule(name=names, fate=st.sampled_from(["is stored", "is refused"]))
    def a_send_back_is_answered(self, name: str, fate: str) -> None:
        writer = self.members[name].writer
        assert isinstance(writer, SendBacks)
        if writer.waiting:
            writer.answer(fate)

    def _go_well(self, name: str) -> None:
        super()._go_well(name)
        writer = self.members[name].writer
        assert isinstance(writer, SendBacks)
        writer.flush(0)


class Together(Members):
    """Send-backs and offsets in one transaction."""

    exactly_once = True

    @rule(
        name=names,
        fate=st.lists(
            st.sampled_from(
                [
                    "is committed",
                    "is aborted",
                    "is refused",
                    "is committed without an answer",
                    "is undone without an answer",
                ]
            ),
            max_size=3,
        ),
        away=st.integers(0, 2),
        before=maybe_partitions,
        after=maybe_partitions,
    )
    def a_sender_steps(self, name: str, fate: list[str], away: int, before: Where | None, after: Where | None) -> None:
        """Partitions may move while it writes, before Kafka judges the transaction or after."""
        member = self.members[name]
        writer, sender = member.writer, member.sender
        assert isinstance(writer, Transactions)
        assert isinstance(sender, SteppedSender)
        writer.fate, writer.away = list(fate), away
        writer.before, writer.after = self._move(before), self._move(after)
        sender.step()
        writer.fate, writer.away, writer.before, writer.after = [], 0, None, None

    @invariant()
    def a_send_back_and_its_commit_are_one(self) -> None:
        for where in PARTITIONS:
            covered = self.kafka.covered(where)
            for offset, body in self.kafka.records(where).items():
                assert self.kafka.sent_back[body] <= (offset in covered), body

    def _go_well(self, name: str) -> None:
        super()._go_well(name)
        sender = self.members[name].sender
        assert isinstance(sender, SteppedSender)
        for _ in range(2):
            sender.step()
            self.members[name].loop.run_once()


for one in (Plainly, Together):
    one.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPlainly = Plainly.TestCase
TestTogether = Together.TestCase
