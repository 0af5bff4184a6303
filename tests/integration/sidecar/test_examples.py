"""Consumers in Java, Go, Node and Python that call the sidecar where they catch an error."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from tests.integration.installation import Installation, installation
from tests.integration.reconciled import assert_reconcile_finds_nothing
from tests.integration.sidecars import Running, running_sidecar, sidecar_settings
from tests.support.docs.other_languages import example_command
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.early(3), pytest.mark.more]

LANGUAGES = ["java", "go", "node", "python"]
VALUES = [b"cancelled" if number % 6 == 0 else b"late" if number % 6 == 1 else b"flown" for number in range(60)]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    groups = [SubscriptionGroupConfig(group_name=f"{language}-group", retry_max_times=2) for language in LANGUAGES]
    with installation(bootstrap_servers, groups) as one:
        yield one


@pytest.fixture(scope="module")
def sidecar(here: Installation) -> Iterator[Running]:
    with running_sidecar(sidecar_settings(here.settings)) as running:
        yield running


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_it_cannot_process_is_retried_and_then_dead_lettered(
    here: Installation, sidecar: Running, tmp_path: Path, language: str
) -> None:
    group, topic, log = f"{language}-group", here.topic(language, 2), tmp_path / "log"
    for number, value in enumerate(VALUES):
        here.produce(topic, value, key=b"%d" % number)
    command = example_command(language, tmp_path)
    cancelled, late = VALUES.count(b"cancelled"), VALUES.count(b"late")

    def is_finished() -> bool:
        """All that it was given is committed: of its topic and of its retry topic."""
        retry_topic = here.settings.names.retry(group)
        if len(here.dead_letters(group)) < cancelled:
            return False
        ends = here.admin.end_offsets([(topic, 0), (topic, 1), (retry_topic, 0)])
        committed = here.all_committed(group)
        # Markers of transactions stand at the end of a retry topic; not every client commits past them.
        last = len(here.retries(group)) and max(record.offset for record in here.retries(group)) + 1
        return all(committed.get(where, 0) >= (last if where[0] == retry_topic else end) for where, end in ends.items())

    with running([*command, here.settings.bootstrap_servers, f"http://{sidecar.api}", group, topic], log) as process:
        wait_until(lambda: process.poll() is not None or is_finished(), 120, f"it has finished: {log}")
        assert process.poll() is None, log.read_text()
    attempts = Counter((record["ORIGIN_MESSAGE_ID"], record["RECONSUME_TIME"]) for record in here.retries(group))
    assert max(attempts.values()) == 1, "no attempt was sent back twice"
    retried = Counter((record.value, record["RECONSUME_TIME"]) for record in here.retries(group))
    assert retried == {(b"cancelled", "1"): cancelled, (b"cancelled", "2"): cancelled, (b"late", "1"): late}
    letters = here.dead_letters(group)
    assert [letter.value for letter in letters] == [b"cancelled"] * cancelled
    assert {letter["__dlq.errors.message"] for letter in letters} == {'no "dep_time"'}
    assert all(letter["__dlq.errors.exception.class"] for letter in letters)
    done = Counter(line.split(maxsplit=1)[1] for line in log.read_text().splitlines() if line.endswith(" send-backs"))
    assert done == {"flown after 0 send-backs": VALUES.count(b"flown"), "late after 1 send-backs": late}


def test_reconcile_finds_nothing_wrong_with_what_they_have_done(here: Installation) -> None:
    """Of all languages that ran before; each attempt ended in exactly one state."""
    if not any(here.dead_letters(f"{language}-group") for language in LANGUAGES):
        pytest.skip("none of the examples ran")
    assert_reconcile_finds_nothing(here)
