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
from typing import ClassVar, Final

import hypothesis.strategies as st
from confluent_kafka import TopicPartition
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.consumers.model_kafka import PARTITIONS, Kafka, Where
from tests.unit.consumers.model_members import TIMEOUT_MS, Member, SendBacks, SteppedSender, Transactions

NAMES: Final = ("a", "b")
FATES: Final = [
    "is committed",
    "is aborted",
    "is refused",
    "is committed without an answer",
    "is undone without an answer",
]
LONGEST_END: Final = 40
"""Turns until everything is done, when nothing goes wrong."""
AT_ONCE: Final = ["succeeds", "fails", "raises", "does the first", "says not now"]
LATER: Final = ["succeeds", "fails", "does the first"]

names = st.sampled_from(NAMES)
partitions = st.sampled_from(PARTITIONS)
moves = st.just([]) | st.lists(partitions, max_size=2)
"""There and back, if it is twice the same."""
results = st.lists(st.sampled_from([*AT_ONCE, None]), max_size=6)
"""Of listeners that are called; None goes on."""


class Members(RuleBasedStateMachine):
    """Two members of a group share the partitions.

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
        self._give(PARTITIONS[:2], "a")
        self._give(PARTITIONS[2:], "b")
        for where in PARTITIONS:
            self.all_goes_on(where, 2, 0, [])

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

    @rule(where=partitions, count=st.integers(1, 6), marked=st.booleans())
    def records_are_appended(self, where: Where, count: int, *, marked: bool) -> None:
        for _ in range(count):
            self.kafka.append(where)
        if marked:
            self.kafka.logs[where].append(None)

    @rule(
        name=names,
        passes=st.sampled_from([1_000, 0, 5_000, TIMEOUT_MS + 1_000]),
        fate=st.sampled_from(["is taken", "is refused", "is lost", "gets no answer"]),
        deaf=st.integers(0, 1),
        moves=moves,
        results=results,
    )
    def a_member_turns(
        self, name: str, passes: int, fate: str, deaf: int, moves: list[Where], results: list[str | None]
    ) -> None:
        """Time has passed, partitions may move between its two reads; then listeners are called."""
        client = self.members[name].client
        client.fate, client.deaf, client.meanwhile = [fate], deaf, self._meanwhile(moves)
        self.kafka.now += passes
        self.members[name].loop.run_once()
        client.fate, client.deaf, client.meanwhile = [], 0, None
        self.listeners_are_called(name, results)

    def _meanwhile(self, moves: list[Where], turns: str = "") -> Callable[[], None]:
        def happens() -> None:
            if turns:
                self.members[turns].loop.run_once()
            for where in moves:
                self._moves(where)

        return happens

    @rule(name=names, results=results)
    def listeners_are_called(self, name: str, results: list[str | None]) -> None:
        """Some go on."""
        member = self.members[name]
        for result in results:
            if member.calls.waiting:
                member.calls.call(member.service, result)

    @rule(
        where=partitions,
        count=st.integers(0, 4),
        passes=st.sampled_from([0, 1_000, 5_000]),
        results=results,
        sends=st.booleans(),
    )
    def all_goes_on(
        self, where: Where, count: int, passes: int, results: list[str | None], *, sends: bool = False
    ) -> None:
        """So that there is something for the other rules to disturb."""
        for _ in range(count):
            self.kafka.append(where)
        for name in NAMES:
            self.kafka.now += passes
            self.members[name].loop.run_once()
            self.listeners_are_called(name, results)
            if sends:
                self._sends(name)

    def _sends(self, name: str) -> None:
        """What waits for Kafka, without a fault."""
        raise NotImplementedError

    @rule(name=names, which=st.integers(0, 3), results=st.lists(st.sampled_from(LATER), min_size=1, max_size=4))
    def listeners_come_back(self, name: str, which: int, results: list[str]) -> None:
        for result in results:
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

    @precondition(_is_whole)
    @rule(
        name=names,
        how=st.sampled_from(["is put out", "dies", "shuts down"]),
        result=st.sampled_from(LATER),
        stored=st.integers(0, 3),
        heirs=st.booleans(),
    )
    def a_member_goes(self, name: str, how: str, result: str, stored: int, *, heirs: bool) -> None:
        if how == "is put out":
            self._is_put_out(name)
        elif how == "dies":
            self._dies(name, stored, heirs=heirs)
        else:
            self._shuts_down(name, result)

    def _is_put_out(self, name: str) -> None:
        """It goes on with what it has, as a process that was stopped does."""
        if name not in self.out and len(self._present()) > 1:
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

    def _dies(self, name: str, stored: int, *, heirs: bool) -> None:
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

    def _shuts_down(self, name: str, result: str) -> None:
        """In each of its polls a listener comes back; one that was put out learns it then."""
        member = self.members[name]
        member.client.fate = ["is refused"]

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
        self._sends(name)


class Plainly(Members):
    """Send-back first, then the commit."""

    exactly_once = False

    @rule(name=names, fates=st.lists(st.sampled_from(["is stored", "is refused"]), min_size=1, max_size=4))
    def send_backs_are_answered(self, name: str, fates: list[str]) -> None:
        writer = self.members[name].writer
        assert isinstance(writer, SendBacks)
        for fate in fates:
            if writer.waiting:
                writer.answer(fate)

    def _sends(self, name: str) -> None:
        writer = self.members[name].writer
        assert isinstance(writer, SendBacks)
        writer.flush(0)


class Together(Members):
    """Send-backs and offsets in one transaction."""

    exactly_once = True

    @rule(
        name=names,
        fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=3),
        away=st.integers(0, 2),
        before=moves,
        after=moves,
        turns=st.booleans(),
    )
    def a_sender_steps(
        self, name: str, fates: list[str], away: int, before: list[Where], after: list[Where], *, turns: bool
    ) -> None:
        """While it writes the loop turns, and partitions move before Kafka judges the transaction or after."""
        writer = self.members[name].writer
        assert isinstance(writer, Transactions)
        writer.fate, writer.away = list(fates), away
        writer.before = self._meanwhile(before, name if turns else "")
        writer.after = self._meanwhile(after)
        self._sends(name)
        writer.fate, writer.away, writer.before, writer.after = [], 0, None, None

    @invariant()
    def a_send_back_and_its_commit_are_one(self) -> None:
        for where in PARTITIONS:
            covered = self.kafka.covered(where)
            for offset, body in self.kafka.records(where).items():
                assert self.kafka.sent_back[body] <= (offset in covered), body

    def _sends(self, name: str) -> None:
        sender = self.members[name].sender
        assert isinstance(sender, SteppedSender)
        sender.step()
        sender.serve()
        sender.step()


for one in (Plainly, Together):
    one.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestPlainly = Plainly.TestCase
TestTogether = Together.TestCase
