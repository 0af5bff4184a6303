"""A group under test: its members, its load, what is done to it, and the evidence in the end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from tests.chaos.journal import Event, Reader, What
from tests.chaos.judge import Copy, Evidence, Judge
from tests.chaos.programs.member import MemberSettings, Style
from tests.chaos.schedule import Action, Round, say
from tests.integration.installation import Installation
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["Combination", "Group"]

_PARTITIONS: Final = 4
_MEMBERS: Final = (2, 3)
"""At least, at most."""
_KINDS: Final = ["ok"] * 12 + ["fail"] * 5 + ["dead"]
_RESULT_TOPICS: Final = (0, 1_000, 2_000)
"""Milliseconds of the delay topics that copies may stand on."""


@dataclass(frozen=True)
class Combination:
    """What is tried.

    Attributes:
        protocol: `classic` is cooperative-sticky, `consumer` is KIP-848.
        rate: messages produced per second.
    """

    protocol: str
    style: Style
    exactly_once: bool
    rate: float = 40.0

    def __str__(self) -> str:
        return f"{self.protocol}, {self.style}, {'exactly once' if self.exactly_once else 'plain'}"


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    reader: Reader
    events: list[Event] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)
    stopped: bool = False

    def read(self) -> list[Event]:
        for event in self.reader.more():
            self.events.append(event)
            if event.what == "assigned":
                self.owned |= set(event.partitions)
            elif event.what in {"revoked", "lost"}:
                self.owned -= set(event.partitions)
        return self.events


class Group:
    """One run; use it from one thread.

    Args:
        folder: for the members' journals and logs.
        seed: of the schedule and of the load.
    """

    def __init__(self, here: Installation, combination: Combination, folder: Path, seed: int) -> None:
        name = here.unique(
            f"{combination.protocol}-{combination.style}-{'eo' if combination.exactly_once else 'plain'}"
        )
        self._here = here
        self._combination = combination
        self._folder = folder
        self._seed = seed
        self._group = here.name(name)
        self._topic = here.topic(name, _PARTITIONS)
        self._members: dict[str, _Process] = {}
        self._done_to: list[Event] = []
        self._producer = Producer(here.settings.client_settings())
        self._slow = 0

    def run(self, rounds: list[Round]) -> Judge:
        """All of it: start, rounds under load, drain, leave; gives the judge."""
        with self._cleaned_up():
            for _ in range(_MEMBERS[0]):
                self._start()
            with self._load():
                self._wait(self._is_consumed, "two members consume")
                for number, one in enumerate(rounds):
                    say(f"{self._combination}: round {number}: {one}")
                    self._round(one)
            wait_until(lambda: not self._judge(with_topics=False).unfinished(), f"{self}: all has ended")
            wait_until(self._is_committed, f"{self}: all is committed")
            for name in self._live():
                self._end(name)
            # A member that was killed last may leave a transaction open, which hides records behind it.
            self._here.wait_for_marks(*map(self._here.settings.names.delay, _RESULT_TOPICS))
            return self._judge()

    def __str__(self) -> str:
        return f"{self._combination}, seed {self._seed}, {self._folder}"

    def _round(self, one: Round) -> None:
        while len(self._live()) < _MEMBERS[0]:
            self._start()
            self._wait(self._is_consumed, "the replacement has joined")
        owners = [name for name in self._live() if self._share(name)]
        name = owners[one.choice % len(owners)]
        if one.action is Action.JOIN:
            self._join()
        elif one.action is Action.LEAVE:
            self._end(name)
        elif one.action is Action.KILL:
            self._signal(name, signal.SIGKILL, "killed")
            self._members[name].popen.wait(PATIENCE)
        elif one.action is Action.STOP:
            self._stop(name)
        else:
            self._make_slow()
            self._join()
        self._wait(self._is_consumed, "all partitions have an owner")
        begun = self._begun()
        self._wait(lambda: self._begun() >= begun + one.load, "messages flow on")

    def _join(self) -> None:
        if len(self._live()) >= _MEMBERS[1]:
            self._end(self._live()[0])
        name = self._start()
        self._wait(lambda: self._members[name].owned, f"{name} has partitions")

    def _stop(self, name: str) -> None:
        member = self._members[name]
        self._signal(name, signal.SIGSTOP, "stopped")
        member.stopped = True
        self._wait(self._is_consumed, "the others have taken over")
        self._signal(name, signal.SIGCONT, "continued")
        member.stopped = False
        at = self._done_to[-1].at
        self._wait(lambda: self._has_lost(member, at), f"{name} learns that it was put out")

    def _has_lost(self, member: _Process, at: float) -> bool:
        """A rebalance that it had not heard of yet when it was stopped comes as a revocation."""
        return any(event.what in {"lost", "revoked"} and event.at > at for event in member.events)

    def _make_slow(self) -> None:
        """One slow message in each partition, begun."""
        bodies = {f"slow-{self._slow + partition}": partition for partition in range(_PARTITIONS)}
        self._slow += _PARTITIONS
        for body, partition in bodies.items():
            self._producer.produce(self._topic, body.encode(), partition=partition)
        self._wait(
            lambda: any(one.body in bodies for member in self._members.values() for one in member.events),
            "a slow one has begun",
        )

    def _wait(self, condition: object, what: str) -> None:
        assert callable(condition)

        def holds() -> bool:
            self._read()
            for name in self._live():
                code = self._members[name].popen.poll()
                assert code is None, f"{self}: {name} has ended by itself with {code}: {self._last_words(name)}"
            return bool(condition())

        wait_until(holds, f"{self}: {what}")

    def _last_words(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text(errors="replace")[-2_000:]

    def _read(self) -> list[Event]:
        return [event for member in self._members.values() for event in member.read()] + self._done_to

    def _begun(self) -> int:
        return sum(event.what == "begin" for member in self._members.values() for event in member.events)

    def _live(self) -> list[str]:
        return [name for name, member in self._members.items() if member.popen.returncode is None]

    def _is_consumed(self) -> bool:
        """Every partition has exactly one owner among those that run."""
        running = [name for name in self._live() if not self._members[name].stopped]
        owned = [one for name in running for one in self._share(name)]
        return sorted(owned) == [f"{self._topic}-{partition}" for partition in range(_PARTITIONS)]

    def _share(self, name: str) -> list[str]:
        """Its partitions, but for the retry topic's."""
        return [one for one in self._members[name].owned if one.startswith(f"{self._topic}-")]

    def _start(self) -> str:
        name = f"member-{len(self._members)}"
        settings = MemberSettings(
            name=name,
            folder=str(self._folder),
            bootstrap_servers=self._here.settings.bootstrap_servers,
            topic_prefix=self._here.settings.topic_prefix,
            group=self._group,
            topic=self._topic,
            protocol=self._combination.protocol,
            exactly_once=self._combination.exactly_once,
            style=self._combination.style,
        )
        with (self._folder / f"{name}.err").open("wb") as errors:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.programs.member", json.dumps(asdict(settings))],
                cwd=Path(__file__).parents[2],
                stderr=errors,
            )
        self._members[name] = _Process(popen, Reader(self._folder / f"{name}.jsonl"))
        return name

    def _end(self, name: str) -> None:
        self._signal(name, signal.SIGTERM, "ended")
        code = self._members[name].popen.wait(PATIENCE)
        assert code == 0, f"{self}: {name} has ended with {code}"

    def _signal(self, name: str, number: signal.Signals, what: What) -> None:
        """A stop counts from before, so that nothing that it did can be after it."""
        at = time.monotonic()
        os.kill(self._members[name].popen.pid, number)
        self._done_to.append(Event(at, name, what))
        with (self._folder / "done-to.txt").open("a") as file:
            file.write(f"{at:.3f} {name} {what}\n")

    @contextmanager
    def _load(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._produce, args=(stop,), name="load")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            assert self._producer.flush(PATIENCE) == 0

    def _produce(self, stop: threading.Event) -> None:
        chance, number = random.Random(self._seed), 0
        while not stop.wait(1 / self._combination.rate):
            body = f"{chance.choice(_KINDS)}-{number}"
            self._producer.produce(self._topic, body.encode(), partition=number % _PARTITIONS)
            self._producer.poll(0)
            number += 1

    @contextmanager
    def _cleaned_up(self) -> Iterator[None]:
        try:
            yield
        finally:
            for member in self._members.values():
                if member.popen.poll() is None:
                    member.popen.kill()
                    member.popen.wait()
            self._producer.close()

    def _is_committed(self) -> bool:
        """What the group has committed is past the last record of each partition."""
        ends: dict[tuple[str, int], int] = {}
        retry = self._here.settings.names.retry(self._group)
        for topic in (self._topic, retry):
            for record in self._here.read(topic):
                ends[topic, record.partition] = max(ends.get((topic, record.partition), 0), record.offset + 1)
        committed = self._here.all_committed(self._group)
        return all(committed.get(where, 0) >= end for where, end in ends.items())

    def _judge(self, *, with_topics: bool = True) -> Judge:
        origins = {
            f"{self._topic}/{one.partition}/{one.offset}": (one.value or b"").decode()
            for one in self._here.read(self._topic)
        }
        copies = [
            Copy(one["ORIGIN_MESSAGE_ID"] or "", int(one["RECONSUME_TIME"] or 0), delay == 0)
            for delay in (_RESULT_TOPICS if with_topics else ())
            for one in self._here.waiting(delay, self._group)
        ]
        return Judge(
            Evidence(
                origins=origins,
                copies=copies,
                events=self._read(),
                exactly_once=self._combination.exactly_once,
                orderly=self._combination.style == "orderly",
                poll_loop=self._combination.style == "drop-in",
            )
        )
