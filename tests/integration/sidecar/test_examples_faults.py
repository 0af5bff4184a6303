"""The consumers of examples/sidecar while something is killed in the middle: nothing lost, no attempt written twice.

All languages run at once, each with a group of its own, beside one `reconsume sidecar`; what ends is started again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_port
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.installation import Installation, installation
from tests.integration.reconciled import assert_reconcile_finds_nothing
from tests.integration.supervised import Supervised, supervised
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.docs.other_languages import example_command
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(7), pytest.mark.more]

LANGUAGES = ["java", "go", "node", "python"]
FAULTS = ["the consumer is killed", "the sidecar is killed", "the broker is killed"]
VALUES = [b"cancelled" if number % 6 == 0 else b"late" if number % 6 == 1 else b"flown" for number in range(240)]
HALF = len(VALUES) // 2
ENOUGH = 10
"""Send-backs of each group after which something is killed: some of the first half, not all of them."""


def group_of(language: str, fault: str) -> str:
    return f"{language}-{FAULTS.index(fault)}"


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """One that may be killed."""
    with kafka_to_kill() as one:
        yield one


@pytest.fixture(scope="module")
def here(kafka: LocalKafka) -> Iterator[Installation]:
    groups = [
        SubscriptionGroupConfig(group_name=group_of(language, fault), retry_max_times=2)
        for language in LANGUAGES
        for fault in FAULTS
    ]
    with installation(kafka.bootstrap_servers, groups) as one:
        yield one


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Of the languages that this machine has."""
    found = {}
    for language in LANGUAGES:
        try:
            found[language] = example_command(language, tmp_path_factory.mktemp(language))
        except pytest.skip.Exception:
            continue
    return found


@dataclass
class World:
    """What runs, and what is given to it."""

    here: Installation
    fault: str
    sidecar: Supervised
    consumers: Mapping[str, Supervised]

    def topic(self, language: str) -> str:
        return self.here.name(f"{language}-{FAULTS.index(self.fault)}")

    def produce(self, numbers: Sequence[int]) -> None:
        for language in self.consumers:
            producer = self.here.producer()
            for number in numbers:
                producer.produce(self.topic(language), VALUES[number], b"%d" % number)
            assert producer.flush(PATIENCE) == 0
            producer.close()

    def until(self, condition: Callable[[str], bool], seconds: float, what: str) -> None:
        """Until it holds for all languages; what ends meanwhile is started again."""

        def holds() -> bool:
            for one in (self.sidecar, *self.consumers.values()):
                one.keep_running()
            try:
                return all(condition(language) for language in self.consumers)
            except KafkaNotReachable:  # the one that was killed has to find itself first
                return False

        wait_until(holds, what, deadline=seconds)

    def sent_back(self, language: str) -> int:
        return len(self.here.waiting(1_000, group_of(language, self.fault)))

    def succeeded(self, language: str) -> Counter[tuple[str, str]]:
        """How often each message was seen to succeed, with the number of its send-backs."""
        lines = [line.split() for line in self.consumers[language].printed.splitlines()]
        done = [line for line in lines if line[-1:] == ["send-backs"]]
        return Counter((key, f"{value} after {times}") for key, value, _, times, _ in done)

    def is_done(self, language: str) -> bool:
        letters = self.here.dead_letters(group_of(language, self.fault))
        has_all = len(letters) >= VALUES.count(b"cancelled") and self.succeeded(language).keys() >= EXPECTED
        return has_all and self.is_committed(language)

    def is_committed(self, language: str) -> bool:
        """All that the group was given is committed: of its topic and of its retry topic."""
        group, topic = group_of(language, self.fault), self.topic(language)
        ends = self.here.admin.end_offsets([(topic, 0), (topic, 1)])
        # Markers of transactions stand at the end of a retry topic; not every client commits past them.
        last = max((record.offset for record in self.here.retries(group)), default=-1) + 1
        ends[self.here.settings.names.retry(group), 0] = last
        committed = self.here.all_committed(group)
        return all(committed.get(where, 0) >= end for where, end in ends.items())


EXPECTED = {
    (str(number), "flown after 0" if value == b"flown" else "late after 1")
    for number, value in enumerate(VALUES)
    if value != b"cancelled"
}


@pytest.fixture(scope="module", params=FAULTS)
def world(
    request: pytest.FixtureRequest,
    kafka: LocalKafka,
    here: Installation,
    commands: Mapping[str, list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """One in which a fault has come and gone, and all is done."""
    fault, folder, port = request.param, tmp_path_factory.mktemp("faults"), free_port()
    with ExitStack() as stack:
        world = World(here, fault, stack.enter_context(sidecar(here, port, folder / "sidecar")), consumers := {})
        for language, command in commands.items():
            group = group_of(language, fault)
            here.admin.create(world.topic(language), 2, -1, {})
            more = [here.settings.bootstrap_servers, f"http://127.0.0.1:{port}", group, world.topic(language)]
            consumers[language] = stack.enter_context(supervised([*command, *more], folder / language))
        world.produce(range(HALF))
        world.until(lambda language: world.sent_back(language) >= ENOUGH, 600, "each has sent some back")
        strike(world, kafka)
        world.produce(range(HALF, len(VALUES)))
        world.until(world.is_done, 600, "each has done all")
        yield world


def sidecar(here: Installation, port: int, log: Path) -> AbstractContextManager[Supervised]:
    command = [sys.executable, "-m", "reconsume", "sidecar", "--bootstrap-servers", here.settings.bootstrap_servers]
    options = ["--listen", f"127.0.0.1:{port}", "--management", "127.0.0.1:0"]
    return supervised([*command, *options], log, RECONSUME_TOPIC_PREFIX=here.settings.topic_prefix)


def strike(world: World, kafka: LocalKafka) -> None:
    if world.fault == "the consumer is killed":
        for consumer in world.consumers.values():
            consumer.kill()
    elif world.fault == "the sidecar is killed":
        world.sidecar.kill()
    else:
        kafka.kill()
        kafka.start()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_attempt_is_written_once_and_every_message_ends(world: World, language: str) -> None:
    if language not in world.consumers:
        pytest.skip(f"no tools for {language}")
    group, topic = group_of(language, world.fault), world.topic(language)
    copies = world.here.retries(group)
    attempts = Counter((copy["ORIGIN_MESSAGE_ID"], copy["RECONSUME_TIME"]) for copy in copies)
    assert [attempt for attempt, times in attempts.items() if times > 1] == []
    found = Counter((copy.key, copy.value, copy["RECONSUME_TIME"]) for copy in copies)
    assert found == Counter(
        (b"%d" % number, value, str(times))
        for number, value in enumerate(VALUES)
        for times in range(1, {b"cancelled": 3, b"late": 2, b"flown": 1}[value])
    )
    letters = world.here.dead_letters(group)
    cancelled = [b"%d" % number for number, value in enumerate(VALUES) if value == b"cancelled"]
    assert sorted(letter.key or b"" for letter in letters) == sorted(cancelled)
    assert {(letter["__dlq.errors.topic"], letter["__dlq.errors.message"]) for letter in letters} == {
        (topic, 'no "dep_time"')
    }
    assert all(letter["__dlq.errors.exception.class"] for letter in letters)
    assert world.succeeded(language).keys() == EXPECTED
    if world.fault == "the sidecar is killed":
        assert world.consumers[language].lives == 1
        assert world.succeeded(language) == dict.fromkeys(EXPECTED, 1), "a consumer that lives does nothing twice"


def test_reconcile_finds_nothing_wrong(here: Installation) -> None:
    """Of all languages and faults that ran before; each attempt ended in exactly one state."""
    if not any(here.dead_letters(group_of(language, fault)) for language in LANGUAGES for fault in FAULTS):
        pytest.skip("none of the examples ran")
    assert_reconcile_finds_nothing(here)
