"""Push by a `reconsume sidecar` while something dies in the middle: nothing lost, no attempt written twice."""

from __future__ import annotations

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_port
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import App, Delivered
from tests.integration.reconciled import assert_reconcile_finds_nothing
from tests.integration.supervised import Supervised, supervised
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

FAULTS = ["app hangs", "app answers garbage", "sidecar killed", "broker killed"]
BODIES = [
    f"{'cancelled' if number % 6 == 0 else 'late' if number % 6 == 1 else 'flown'} {number}" for number in range(300)
]
HALF = len(BODIES) // 2
CANCELLED = {body for body in BODIES if body.startswith("cancelled")}
LATE = {body for body in BODIES if body.startswith("late")}
SECONDS = {"app hangs": 2.0}
"""That the app has for an answer; 30 without such a fault: a late answer is a failure too, and counted."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """One that may be killed."""
    with kafka_to_kill() as one:
        yield one


@pytest.fixture(scope="module")
def here(kafka: LocalKafka) -> Iterator[Installation]:
    with installation(kafka.bootstrap_servers) as one:
        yield one


@dataclass
class Flights:
    """An app that can be killed and started again, or hang; remembers what it was given in all its lives."""

    port: int
    hanging: threading.Event = field(default_factory=threading.Event)
    seen: list[Delivered] = field(default_factory=list)
    succeeded: Counter[str] = field(default_factory=Counter)
    app: App | None = None

    def start(self) -> None:
        self.app = App(self.decide, port=self.port)
        self.app.start()

    def stop(self) -> None:
        app, self.app = self.app, None
        if app is not None:
            app.stop()

    def decide(self, one: Delivered, _before: int) -> Mapping[str, Any]:
        self.seen.append(one)
        if self.hanging.is_set():
            return {"sleep": 600}
        if one.value in CANCELLED:
            return {"status": 422}
        if one.value in LATE and one.times == 0:
            return {"status": 500, "sleep": 0.01}
        self.succeeded[one.value] += 1
        return {"sleep": 0.01}


@dataclass
class World:
    """What ran while a fault came and went."""

    here: Installation
    group: str
    fault: str
    flights: Flights

    def is_done(self) -> bool:
        wanted = set(BODIES) - CANCELLED
        return self.flights.succeeded.keys() >= wanted and len(self.here.dead_letters(self.group)) >= len(CANCELLED)


@pytest.fixture(scope="module", params=FAULTS)
def world(
    request: pytest.FixtureRequest, kafka: LocalKafka, here: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    fault, folder = request.param, tmp_path_factory.mktemp("push")
    group, topic = here.name(fault.replace(" ", "-")), here.topic(f"{FAULTS.index(fault)}", 2)
    flights = Flights(free_port())
    world = World(here, group, fault, flights)
    flights.start()
    with ExitStack() as stack:
        stack.callback(flights.stop)
        sidecar = stack.enter_context(pushing_sidecar(world, topic, folder))

        def until(condition: Any, what: str) -> None:
            def holds() -> Any:
                sidecar.keep_running()
                try:
                    return condition()
                except KafkaNotReachable:  # the one that was killed has to find itself first
                    return False

            wait_until(holds, what, deadline=600)

        here.produce(topic, *(body.encode() for body in BODIES[:HALF]))
        until(lambda: len(flights.seen) >= HALF // 4, "a part is delivered")
        strike(world, sidecar, kafka)
        here.produce(topic, *(body.encode() for body in BODIES[HALF:]))
        until(world.is_done, f"all is done: {folder}")
        yield world


def pushing_sidecar(world: World, topic: str, folder: Path) -> Any:
    settings = world.here.settings
    subscription = {
        "group": world.group,
        "topics": [topic],
        "url": f"http://127.0.0.1:{world.flights.port}",
        "order": "none",
        "max_in_flight": 8,
        "consume_timeout_seconds": SECONDS.get(world.fault, 30.0),
        "exactly_once": True,
    }
    given = {
        "bootstrap_servers": settings.bootstrap_servers,
        "topic_prefix": settings.topic_prefix,
        "kafka": {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
        "sidecar": {"listen": {"port": 0}},
        "management": {"port": 0},
        "subscriptions": [subscription],
    }
    file = folder / "sidecar.yaml"
    file.write_text(yaml.safe_dump(given), encoding="utf-8")
    return supervised([sys.executable, "-m", "reconsume", "sidecar", "--config", str(file)], folder / "log")


def strike(world: World, sidecar: Supervised, kafka: LocalKafka) -> None:
    flights, seen = world.flights, len(world.flights.seen)
    if world.fault == "sidecar killed":
        sidecar.kill()
    elif world.fault == "broker killed":
        kafka.kill()
        kafka.start()
    elif world.fault == "app hangs":
        flights.hanging.set()
        wait_until(lambda: len(flights.seen) >= seen + 8, "all that may be in flight hang")
        wait_until(lambda: len(flights.seen) > seen + 8, "what hung too long was given up, and others came")
        flights.hanging.clear()
    else:
        flights.stop()
        with garbage(flights.port) as asked:
            wait_until(lambda: len(asked) >= 3, "it was probed")
        flights.start()


@contextmanager
def garbage(port: int) -> Iterator[list[bytes]]:
    """Answers every connection with bytes that are no HTTP, and hangs up."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", port), reuse_port=False)

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                asked.append(connection.recv(65_536))
                connection.sendall(b"\x16\x03\x01 no http at all\r\n\r\n")
                connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE)


def test_nothing_is_lost_and_no_attempt_is_written_twice(world: World) -> None:
    letters = [(letter.value or b"").decode() for letter in world.here.dead_letters(world.group)]
    assert sorted(letters) == sorted(CANCELLED), "each once"
    assert world.flights.succeeded.keys() == set(BODIES) - CANCELLED
    copies = world.here.retries(world.group)
    attempts = Counter((copy["ORIGIN_MESSAGE_ID"], copy["RECONSUME_TIME"]) for copy in copies)
    assert [attempt for attempt, times in attempts.items() if times > 1] == []


def test_only_the_apps_own_answers_and_its_silence_cost_an_attempt(world: World) -> None:
    copies = {((copy.value or b"").decode(), copy["RECONSUME_TIME"]) for copy in world.here.retries(world.group)}
    own = {(body, "1") for body in LATE}
    if world.fault == "app hangs":
        assert copies > own, "those that it left without an answer went back too"
    else:
        assert copies == own


@pytest.mark.long
def test_reconcile_finds_nothing_wrong(here: Installation) -> None:
    """Of all faults that ran before."""
    assert_reconcile_finds_nothing(here)
