"""Two members of a consumer group, for the model: what they do, and what may happen to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reconsume.bridge.kafka.admin import Commit
from tests.models.consumers.kafka import PARTITIONS, Kafka, Where
from tests.models.consumers.members import Member, PlainWriter, SteppedSender, Transactions

__all__ = ["NAMES", "Group"]

NAMES: Final = ("a", "b")


class Group:
    """Who is put out is passed by, and goes on as if nothing had happened, until it is told.

    Attributes:
        owners: whose a partition is, by what the group's coordinator says.
        out: who was put out of the group and does not know.
    """

    def __init__(self, *, exactly_once: bool, orderly: bool) -> None:
        self._exactly_once = exactly_once
        self._orderly = orderly
        self.kafka = Kafka()
        self.members: dict[str, Member] = {}
        self.owners: dict[Where, str] = {}
        self.out: set[str] = set()
        for name in NAMES:
            self._start(name)
        self._rebalance()
        self._give(PARTITIONS[:2], "a")
        self._give(PARTITIONS[2:], "b")

    def _start(self, name: str) -> None:
        self.members[name] = Member(self.kafka, exactly_once=self._exactly_once, orderly=self._orderly)

    def _rebalance(self) -> None:
        """A new generation, of which all members know but those who were put out."""
        self.kafka.generation += 1
        for name in self._present():
            self.members[name].client.generation = self.kafka.generation

    def _present(self) -> list[str]:
        return [name for name in NAMES if name not in self.out]

    def _give(self, wheres: Sequence[Where], name: str, left_over: int | None = None) -> None:
        for where in wheres:
            self.owners[where] = name
        old = [self.kafka.logs[where][left_over] for where in wheres if left_over is not None]
        self.members[name].client.assign(wheres, [one for one in old if one is not None])

    def _pass_on(self, name: str) -> None:
        """What it had goes to the other one, if that is there."""
        self._rebalance()
        heir = next((one for one in self._present() if one != name), name)
        self._give([where for where, owner in self.owners.items() if owner == name], heir)

    def turns(self, name: str, passes: int = 1_000) -> None:
        self.kafka.now += passes
        self.members[name].loop.run_once()

    def calls(self, name: str, results: Sequence[str | None]) -> None:
        """Listeners that wait, each with its result; None goes on."""
        member = self.members[name]
        for result in results:
            if member.calls.waiting:
                member.calls.call(member.service, result)

    def come_back(self, name: str, which: int, results: Sequence[str]) -> None:
        for result in results:
            if self.members[name].calls.running:
                self.members[name].calls.come_back(which, result)

    def sends(self, name: str) -> None:
        """What waits for Kafka, as the writer's fate has it."""
        writer, sender = self.members[name].writer, self.members[name].sender
        if isinstance(writer, PlainWriter):
            writer.flush(0)
        elif isinstance(sender, SteppedSender):
            sender.step()
            sender.serve()
            sender.step()

    def answers(self, name: str, fates: Sequence[str]) -> None:
        """To send-backs of their own."""
        writer = self.members[name].writer
        assert isinstance(writer, PlainWriter)
        for fate in fates:
            if writer.waiting:
                writer.answer(fate)

    def transacts(
        self,
        name: str,
        fates: Sequence[str],
        away: int = 0,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Something may happen before Kafka judges a transaction, or after; nobody tells of one for `away` times."""
        writer = self.members[name].writer
        assert isinstance(writer, Transactions)
        writer.fate, writer.away, writer.before, writer.after = list(fates), away, before, after
        self.sends(name)
        writer.fate, writer.away, writer.before, writer.after = [], 0, None, None

    def moves(self, where: Where, *, flushes: bool = True, left_over: bool = False) -> None:
        """In order: its owner gives it back first, and waits for send-backs, which may take too long."""
        old = self.owners[where]
        heirs = [name for name in self._present() if name != old]
        if not heirs:
            return
        writer = self.members[old].writer
        if isinstance(writer, PlainWriter):
            writer.flushes = flushes
        self.members[old].client.give_back([where])
        if isinstance(writer, PlainWriter):
            writer.flushes = True
        self._rebalance()
        begun = self.kafka.committed.get(where, (0, ""))[0] > 0
        self._give([where], heirs[0], 0 if left_over and begun else None)

    def is_put_out(self, name: str) -> None:
        """It goes on with what it has, as a process that was stopped does."""
        if len(self._present()) > 1:
            self.out.add(name)
            self._pass_on(name)

    def tell(self) -> None:
        """Who was put out learns it, and comes again."""
        for name in sorted(self.out):
            client = self.members[name].client
            client.give_back(list(client.believed), lost=True)
            self.out.remove(name)
            self._rebalance()

    def dies(self, name: str, stored: int = 0, *, comes_again: bool = False) -> None:
        """What was on its way to Kafka may arrive. The next one of that name has what it had, or nothing."""
        dead = self.members[name]
        dead.client.alive = False
        if isinstance(dead.writer, PlainWriter):
            for body, _ in dead.writer.waiting[:stored]:
                self.kafka.sent_back[body] += 1
        dead.calls.abandon()
        self.out.discard(name)
        self._start(name)
        if comes_again:
            self._rebalance()
            self._give([where for where, owner in self.owners.items() if owner == name], name)
        else:
            self._pass_on(name)

    def shuts_down(self, name: str, result: str, fates: Sequence[str] = ()) -> None:
        """In each of its polls a listener comes back; one that was put out learns it then."""
        member = self.members[name]

        def polls() -> None:
            if name in self.out:
                self.tell()
            self.come_back(name, 0, [result])

        member.client.fate, member.client.on_poll = list(fates), polls
        member.loop.finish()
        member.loop.end()
        self._start(name)
        self._pass_on(name)

    def is_whole(self) -> bool:
        """Whether the coordinator has all offsets."""
        return self.kafka.told == self.kafka.committed

    def loses_offsets(self, *, lost: bool) -> None:
        """Right after the members have asked for them; the group is gone too, and its partitions move."""
        self.tell()
        commits = {one: Commit(*at) for one, at in self.kafka.committed.items()}
        for member in self.members.values():
            member.client.answer()
            member.known.note(commits)
        self.kafka.told.clear()
        owners = dict(self.owners)
        for where, name in owners.items():
            self.members[name].client.give_back([where], lost=lost)
        self._rebalance()
        for where, name in owners.items():
            self._give([where], "b" if name == "a" else "a")

    def goes_well(self) -> None:
        """A turn of everybody without a fault, in which listeners succeed."""
        self.tell()
        for name in NAMES:
            self.turns(name, 5_000)
            member = self.members[name]
            self.calls(name, ["succeeds"] * len(member.calls.waiting))
            self.come_back(name, 0, ["succeeds"] * len(member.calls.running))
            self.sends(name)

    def is_done(self) -> bool:
        return all(self.kafka.covered(where) == set(self.kafka.records(where)) for where in PARTITIONS)

    def end(self) -> None:
        """Leave nothing behind, whatever the state."""
        for member in self.members.values():
            member.calls.abandon()
