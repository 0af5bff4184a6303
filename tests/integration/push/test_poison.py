"""Push to an app that one message kills: the others go on, none of them is counted, and the one is a dead letter."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from reconsume.cli.broker.ports import free_port
from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import pushing
from tests.integration.supervised import Supervised, supervised
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def delivered(one: Supervised) -> Counter[str]:
    """How often each message came with which count."""
    return Counter(one.printed.splitlines())


def dead_letters(here: Installation, group: str) -> dict[str, str | None]:
    """The cause of each."""
    return {(one.value or b"").decode(): one["__dlq.errors.message"] for one in here.dead_letters(group)}


def until(one: Supervised, condition: Callable[[], bool], what: str, meanwhile: Callable[[], None]) -> None:
    """The app is started again whenever it has ended, and other messages keep coming."""

    def holds() -> bool:
        one.keep_running()
        meanwhile()
        return condition()

    wait_until(holds, what)


@pytest.mark.parametrize("order", ["none", "key"])
def test_a_message_that_kills_the_app_becomes_a_dead_letter_and_no_other_is_counted(
    here: Installation, tmp_path: Path, order: str
) -> None:
    topic, group, port = here.topic(f"poison-{order}"), here.name(f"poison-{order}-group"), free_port()
    numbers, produced = count(), list[str]()

    def more() -> None:
        bodies = [f"good {next(numbers)}" for _ in range(3)]
        produced.extend(bodies)
        for body in bodies:
            here.produce(topic, body.encode(), key=body.encode())

    more()
    here.produce(topic, b"poison 0", key=b"poison")
    command = [sys.executable, "-m", "tests.integration.push.fragile_app", str(port)]
    url, settings = f"http://127.0.0.1:{port}", {"max_in_flight": 4, "max_reconsume_times": 1}
    with supervised(command, tmp_path / "log") as one, pushing(here, group, topic, url, order=order, **settings):
        until(one, lambda: "poison 0" in dead_letters(here, group), "it is a dead letter", more)
        wanted = len(produced) + 1
        until(one, lambda: here.finished(group, topic) == wanted, "all others are done", lambda: None)
    came = delivered(one)
    assert came.keys() == {f"{body} 0" for body in produced} | {"poison 0 0", "poison 0 1"}
    assert came["poison 0 0"] >= 4, (
        "twice with others, twice alone; more if there was nothing else to deliver meanwhile"
    )
    assert came["poison 0 1"] < 4, "when it comes again, it is known"
    letters = dead_letters(here, group)
    assert letters.keys() == {"poison 0"}
    assert "the app crashed repeatedly when it had only this message" in (letters["poison 0"] or "")


def test_a_status_counts_although_the_rest_of_the_answer_is_cut_off(here: Installation, tmp_path: Path) -> None:
    topic, group, port = here.topic("half"), here.name("half-group"), free_port()
    here.produce(topic, b"half 422", b"half 500", b"half 200", b"good 1")
    command = [sys.executable, "-m", "tests.integration.push.fragile_app", str(port)]
    url, settings = f"http://127.0.0.1:{port}", {"order": "partition", "max_reconsume_times": 1}
    with supervised(command, tmp_path / "log") as one, pushing(here, group, topic, url, **settings):
        wait_until(lambda: len(dead_letters(here, group)) == 3, "they are dead letters")
        wait_until(lambda: here.committed(group, topic) == 4, "all are done")
    assert delivered(one) == {
        **dict.fromkeys(("half 422 0", "good 1 0"), 1),
        **dict.fromkeys(("half 500 0", "half 500 1", "half 200 0", "half 200 1"), 1),
    }
