"""A history that real consumers and a real scheduler made, and a part of it to copy."""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation, settings_for
from tests.spark.histories.copies import Copied, Copy, take
from tests.support.waiting import wait_until

__all__ = ["MESSAGES", "Lived", "lived", "taken"]

MESSAGES: Final = 400
GROUPS: Final = ("paris/a.b", "berlin")


@dataclass
class Lived:
    """A finished history: real consumers, a real scheduler, two groups, an inbox."""

    installation: Installation
    groups: tuple[str, ...]

    @property
    def prefix(self) -> str:
        return self.installation.settings.topic_prefix

    @property
    def bootstrap_servers(self) -> str:
        return self.installation.settings.bootstrap_servers


def body_of(message: Any) -> int:
    return int(message.body)


@pytest.fixture(scope="session")
def lived(bootstrap_servers: str, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Message n fails n % 4 times in each group; whatever fails three times is a dead letter.

    The process that needs it first makes it, for all processes of the run that have the same Kafka.
    """
    folder = tmp_path_factory.getbasetemp()
    of_the_run = folder.parent if hasattr(pytestconfig, "workerinput") else folder
    made = of_the_run / f"lived-{bootstrap_servers.rpartition(':')[2]}.json"
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            made.write_text(json.dumps(live(bootstrap_servers)))
    prefix = json.loads(made.read_text())
    one = Installation(settings_for(bootstrap_servers, prefix))
    return Lived(one, tuple(map(one.name, GROUPS)))


def live(bootstrap_servers: str) -> str:
    """Make the history; its prefix."""
    with installation(bootstrap_servers) as one:
        topic = one.topic("flights", 2)
        groups = tuple(map(one.name, GROUPS))
        seen = Deliveries(
            lambda messages, _context: SUCCESS if messages[0].reconsume_times >= body_of(messages[0]) % 4 else LATER
        )
        consumers = [one.consumer(group, topic, seen, max_reconsume_times=2) for group in groups]
        one.produce(topic, *[b"%d" % number for number in range(MESSAGES)])
        plain = [("REAL_TOPIC", f"%RETRY%{groups[0]}".encode()), ("RETRY_TOPIC", topic.encode())]
        one.produce(one.settings.names.send_back, b"0", key=b"inbox", headers=plain)
        one.produce(one.settings.names.send_back, b"0", key=b"broken", headers=[*plain, ("RECONSUME_TIME", b"\xff")])
        for consumer in consumers:
            consumer.start()
        wait_until(lambda: all(len(one.dead_letters(group)) == MESSAGES // 4 for group in groups), "dead letters")
        wait_until(lambda: one.read(one.settings.names.quarantine), "the broken record")
        tries = len(groups) * (MESSAGES + MESSAGES // 4 * 5) + 1  # and the one from the inbox
        wait_until(lambda: len(seen.messages) == tries, "all tries")
        for consumer in consumers:
            consumer.shutdown()
        return one.settings.topic_prefix


@pytest.fixture(scope="session")
def taken(lived: Lived) -> Copy:
    """A part of the history: 40 messages, all their attempts."""

    def keep(record: Copied) -> bool:
        return record.key is None and int(record.value or b"0") < 40

    return take(lived.bootstrap_servers, lived.prefix, keep)
