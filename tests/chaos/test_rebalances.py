"""Rebalances under load, of one seed; RECONSUME_CHAOS_SEED names another one, and 0 takes any.

A failing run is repeated with the seed that it prints.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.group import Combination, Group
from tests.chaos.programs.member import SESSION_SECONDS
from tests.chaos.schedule import say, schedule
from tests.integration.installation import Installation, installation
from tests.support.brokers.kafka import local_kafka

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.early(5)]

_BROKER = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
SEED = int(os.environ.get("RECONSUME_CHAOS_SEED", "190028")) or random.SystemRandom().randrange(1, 1_000_000)
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture(scope="module")
def here() -> Iterator[Installation]:
    """A broker of its own: with KIP-848 the session's timeout is the broker's setting."""
    with local_kafka(properties=_BROKER) as kafka, installation(kafka.bootstrap_servers) as one:
        yield one


def run(here: Installation, combinations: Sequence[Combination], rounds: int, folder: Path) -> None:
    """Side by side; each has its own schedule."""
    say(f"RECONSUME_CHAOS_SEED={SEED}")

    def one(number: int) -> list[str]:
        place = folder / str(number)
        place.mkdir()
        group = Group(here, combinations[number], place, SEED + number)
        judge = group.run(schedule(SEED + number, rounds))
        say(f"{combinations[number]}: {judge.deliveries()} deliveries, {judge.repeated()} of them repeats")
        return [f"{group}: {finding}" for finding in judge.findings()]

    with ThreadPoolExecutor(len(combinations)) as pool:
        found = [finding for findings in pool.map(one, range(len(combinations))) for finding in findings]
    assert not found, f"RECONSUME_CHAOS_SEED={SEED}; {len(found)} findings:\n" + "\n".join(found[:40])


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_nothing_is_lost_and_only_the_unfinished_comes_twice(here: Installation, protocol: str, tmp_path: Path) -> None:
    both = [Combination(protocol, "concurrently", exactly_once) for exactly_once in (False, True)]
    run(here, both, 5, tmp_path)


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.long), "consumer"])
def test_orderly_listeners_keep_the_order_too(here: Installation, protocol: str, tmp_path: Path) -> None:
    both = [Combination(protocol, "orderly", exactly_once, rate=30) for exactly_once in (False, True)]
    run(here, both, 5, tmp_path)


def test_a_poll_loop_sends_back_exactly_once(here: Installation, tmp_path: Path) -> None:
    run(here, [Combination(protocol, "drop-in", exactly_once=True, rate=30) for protocol in PROTOCOLS], 5, tmp_path)
