"""The apps of examples/sidecar, run as their readers would, behind a subscription."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconsume.cli.broker.ports import free_port
from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import pushing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

ROOT = Path(__file__).parents[3]
FLIGHTS: list[dict[str, Any]] = [
    {"number": 1, "dep_time": 517},
    {"number": 2, "dep_time": None},
    {"number": 3, "dep_time": 533, "cancelled": True},
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@contextmanager
def running(name: str, *arguments: str, log: Path) -> Iterator[None]:
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-m", f"examples.sidecar.{name}", *arguments], stdout=out, stderr=out, cwd=ROOT
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


def produce(here: Installation, topic: str) -> None:
    for flight in FLIGHTS:
        value = json.dumps(flight).encode()
        here.produce(topic, value, key=b"UA%d" % flight["number"], headers=[("content-type", b"application/json")])


def check(here: Installation, group: str) -> list[Any]:
    """Flight 2 came again, flight 3 is dead; gives the dead letter's reason."""
    wait_until(lambda: len(here.retries(group)) >= 2, "flight 2 came back, and once more")
    assert {json.loads(one.value or b"")["number"] for one in here.retries(group)} == {2}
    wait_until(lambda: here.dead_letters(group), "flight 3 is dead")
    [letter] = here.dead_letters(group)
    assert json.loads(letter.value or b"")["number"] == 3
    return [letter["__dlq.errors.exception.class"], letter["__dlq.errors.message"]]


def test_an_unmodified_subscriber_of_dapr(here: Installation, tmp_path: Path) -> None:
    group, topic, port = here.name("dapr-group"), here.topic("dapr"), free_port()
    produce(here, topic)
    log = tmp_path / "log"
    with (
        running("dapr_subscriber", str(port), topic, log=log),
        # No topic in the settings: the app names it, when it is up.
        pushing(here, group, None, f"http://127.0.0.1:{port}", profile="dapr"),
    ):
        assert check(here, group)[0] == "APP_DROP"
    assert log.read_text().count("flight 1\n") == 1


def test_a_receiver_of_cloud_events(here: Installation, tmp_path: Path) -> None:
    group, topic, port = here.name("ce-group"), here.topic("ce"), free_port()
    produce(here, topic)
    log = tmp_path / "log"
    with (
        running("cloudevents_receiver", str(port), log=log),
        pushing(here, group, topic, f"http://127.0.0.1:{port}"),
    ):
        assert check(here, group) == ["Cancelled", "it never took off"]
    assert f"event {topic}/0/0 UA1 " in log.read_text()
    assert len({line.split()[1] for line in log.read_text().splitlines()}) == 3, "ids are the same over deliveries"
    assert {one["DELAY"] for one in here.retries(group)} == {"4"}, "the lowest level that waits 2 s"
