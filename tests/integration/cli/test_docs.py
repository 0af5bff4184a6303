"""The programs of README and docs, each run as a reader would, on a Kafka with a scheduler."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from reconsume.bridge.process.settings import ManagementSettings, SchedulerSettings, Settings, TopicSettings
from tests.integration.installation import Installation, scheduler
from tests.support.brokers.kafka import local_kafka
from tests.support.docs.pages import Snippet, python_blocks
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(2)]

PROGRAMS = list({ast.dump(ast.parse(one.text)): one for one in reversed(python_blocks(complete=True))}.values())
"""Each once: a translated page has the same programs with other comments."""
ADDRESS = "localhost:9092"
_TOPICS = re.compile(r"""subscribe\(\[?["']([^"'^][^"']*)["']""")


@pytest.fixture(scope="module")
def here() -> Iterator[Installation]:
    """A Kafka of its own: the programs use the default names."""
    with local_kafka() as kafka:
        settings = Settings(
            bootstrap_servers=kafka.bootstrap_servers,
            allowed_real_topics=["orders"],  # where docs/delayed-messages.md sends
            topics=TopicSettings(delay_partitions=1),
            scheduler=SchedulerSettings(instance_id="docs"),
            management=ManagementSettings(port=0),
        )
        one = Installation(settings)
        one.make_topics()
        one.write_groups()
        one.admin.create("orders", 1, -1, {})
        with scheduler(settings):
            yield one


def committed_beyond(here: Installation, ends: dict[tuple[str, int], int]) -> bool:
    """Whether a group has consumed something that was produced after `ends`."""
    client = AdminClient(here.settings.client_settings())  # its answers never come once it is forgotten
    groups = client.list_consumer_groups(request_timeout=10).result().valid
    offsets = [here.all_committed(group.group_id) for group in groups]
    return any(one.get(where, 0) > end for one in offsets for where, end in ends.items())


def test_the_pages_have_programs() -> None:
    assert {program.where.partition(":")[0] for program in PROGRAMS} >= {"README.md", "docs/consuming.md"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.where)
def test_a_program_of_the_pages_does_what_it_says(here: Installation, program: Snippet, tmp_path: Path) -> None:
    """It consumes, and prints if it has a `print`, until SIGTERM; or it ends by itself."""
    file, out = tmp_path / "program.py", tmp_path / "out"
    file.write_text(program.text.replace(ADDRESS, here.settings.bootstrap_servers))
    topics = sorted(set(_TOPICS.findall(program.text)))
    for topic in topics:
        here.admin.create(topic, 1, -1, {})
    ends = here.admin.end_offsets((topic, 0) for topic in topics)
    for topic in topics:
        # Once, and before it starts: a reader who has produced something sees it.
        here.produce(topic, b'{"flight": 1545}', key=b"UA1545", headers=[("TAGS", b"delayed")])

    def has_done_it() -> bool:
        printed = "print(" not in program.text or out.read_bytes() != b""
        saved = any(tmp_path.rglob("offsets.json")) or committed_beyond(here, ends)
        return run.poll() is not None or (printed and saved)

    # Offsets of a broadcasting consumer go to the home directory.
    environment = os.environ | {"RECONSUME_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers, "HOME": str(tmp_path)}
    with (
        out.open("wb") as stdout,
        (tmp_path / "errors").open("wb") as stderr,
        subprocess.Popen([sys.executable, "-u", file], stdout=stdout, stderr=stderr, env=environment) as run,
    ):
        try:
            wait_until(has_done_it, f"{program.where} has consumed a record, and printed if it prints")
            if topics:
                assert run.poll() is None, f"it ended early: {(tmp_path / 'errors').read_text()}"
                run.send_signal(signal.SIGTERM)
            run.wait(PATIENCE)
        finally:
            run.kill()
    assert run.returncode == 0, (tmp_path / "errors").read_text()
