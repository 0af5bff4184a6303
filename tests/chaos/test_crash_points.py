"""The crash-point matrix: a process is killed at every step between two durable effects, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, Record, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]

AT_ONCE = 4
EACH = 3
BOTH = ("before", "after")

IN_A_TRANSACTION = [
    f"{when}:{call}" for call in ("produce:1", "send_offsets:1", "commit_transaction:1") for when in BOTH
]
SCHEDULER = [*IN_A_TRANSACTION, "before:begin:3", "after:begin:3", *(f"{when}:abort:1" for when in BOTH)]
"""The first two transactions of a scheduler ask for the brokers' time and try a position; they are aborted."""
SCHEDULER_AT_LEAST_ONCE = [
    f"{when}:{call}:1" for call in ("produce", "acknowledged", "flush", "commit") for when in BOTH
]
CONSUMER = [*IN_A_TRANSACTION, "before:begin:1", "after:begin:1"]
CONSUMER_PLAIN = [f"{when}:{call}:1" for call in ("produce", "acknowledged", "commit") for when in BOTH]


@contextmanager
def process(step: str, *arguments: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.chaos.programs.crash", step, *arguments]
    with subprocess.Popen(command, env=os.environ | environment, cwd=Path(__file__).parents[2]) as one:
        try:
            yield one
        finally:
            one.kill()


def killed_and_started_again(
    step: str, arguments: Sequence[str], environment: dict[str, str], done: Callable[[], bool]
) -> None:
    with process(step, *arguments, environment=environment) as one:
        assert one.wait(PATIENCE) == -signal.SIGKILL, f"{step} was not reached"
    with process("never", *arguments, environment=environment) as one:
        wait_until(done, f"{step}: all is done after the restart")
        assert one.poll() is None


def installation_of(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


def scheduler_dies(bootstrap_servers: str, delivery: str, step: str) -> list[str]:
    """Deliveries, dead letters, poison and send-backs of the inbox wait when it starts; gives what is wrong then."""
    one = installation_of(bootstrap_servers)
    names, group = one.settings.names, one.name("g")
    retry: list[Header] = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RETRY_TOPIC", b"orders")]
    bodies = {kind: [f"{kind}{number}".encode() for number in range(EACH)] for kind in ("good", "dead", "bad", "in")}
    one.produce(names.delay(1_000), *bodies["good"], headers=retry)
    one.produce(names.delay(0), *bodies["dead"], headers=[("REAL_TOPIC", f"%DLQ%{group}".encode())])
    one.produce(names.delay(0), *bodies["bad"])
    one.produce(names.send_back, *bodies["in"], headers=retry)
    arguments = ["scheduler", "--instance-id", "mortal", "--management", "127.0.0.1:0", "--log-level", "ERROR"]
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": one.settings.topic_prefix,
        "RECONSUME_SCHEDULER__DELIVERY": delivery,
    }

    def found() -> dict[str, Counter[bytes | None]]:
        there = {"retry": one.retries(group), "dlq": one.dead_letters(group), "bad": one.read(names.quarantine)}
        return {where: Counter(record.value for record in records) for where, records in there.items()}

    expected = {"retry": bodies["good"] + bodies["in"], "dlq": bodies["dead"], "bad": bodies["bad"]}

    def done() -> bool:
        there = found()
        return all(set(there[where]) >= set(values) for where, values in expected.items())

    killed_and_started_again(step, arguments, environment, done)
    wrong = []
    for where, counts in found().items():
        wanted = dict.fromkeys(expected[where], 1)
        right = set(counts) == set(wanted) if delivery == "at_least_once" else counts == wanted
        if not right:
            wrong.append(f"{step}: {where} has {dict(counts)}")
    # At least once a send-back may be there twice; the first delivery tells.
    stored, arrived = (_first(records) for records in (one.waiting(1_000, group), one.retries(group)))
    early = [body for body, at in arrived.items() if at < stored[body] + 1_000]
    return [*wrong, *(f"{step}: early: {body!r}" for body in early)]


def _first(records: Sequence[Record]) -> dict[bytes | None, int]:
    found: dict[bytes | None, int] = {}
    for one in records:
        found[one.value] = min(one.timestamp, found.get(one.value, one.timestamp))
    return found


def consumer_dies(bootstrap_servers: str, exactly_once: bool, step: str) -> list[str]:
    """Some messages fail; gives what is wrong on the delay topic in the end."""
    one = installation_of(bootstrap_servers)
    group, topic = one.name("g"), one.topic("orders")
    failing = [b"fail%d" % number for number in range(EACH)]
    one.produce(topic, b"ok1", *failing, b"ok2")
    arguments = ["consumer", bootstrap_servers, one.settings.topic_prefix, group, topic, str(exactly_once)]
    killed_and_started_again(step, arguments, {}, lambda: one.committed(group, topic) == EACH + 2)
    one.wait_for_marks(one.settings.names.delay(1_000))
    counts = Counter(record.value for record in one.waiting(1_000, group))
    right = counts == dict.fromkeys(failing, 1) if exactly_once else set(counts) == set(failing)
    return [] if right else [f"{step}: sent back {dict(counts)}"]


def side_by_side(steps: Sequence[str], die: Callable[[str], list[str]]) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [wrong for found in pool.map(die, steps) for wrong in found]


@pytest.mark.parametrize(
    ("delivery", "steps"),
    [("transactional", SCHEDULER), ("at_least_once", SCHEDULER_AT_LEAST_ONCE)],
    ids=["transactional", "at least once"],
)
def test_a_scheduler_may_die_at_any_step(bootstrap_servers: str, delivery: str, steps: list[str]) -> None:
    assert side_by_side(steps, lambda step: scheduler_dies(bootstrap_servers, delivery, step)) == []


@pytest.mark.parametrize(
    ("exactly_once", "steps"), [(True, CONSUMER), (False, CONSUMER_PLAIN)], ids=["exactly once", "plain"]
)
def test_a_consumer_may_die_at_any_step(bootstrap_servers: str, exactly_once: bool, steps: list[str]) -> None:
    assert side_by_side(steps, lambda step: consumer_dies(bootstrap_servers, exactly_once, step)) == []
