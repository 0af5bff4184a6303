"""Three programs of confluent-kafka, changed to the drop-in by at most three lines, and the program of the docs."""

from __future__ import annotations

import difflib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.installation import Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[3]
EXAMPLES = ["poll_loop", "asyncio_tasks", "batch"]
PAGE = ROOT / "docs" / "drop-in.md"


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    # The programs know nothing of a prefix, so this one is the default.
    with installation(bootstrap_servers, prefix="reconsume.") as one:
        yield one


@pytest.mark.parametrize("name", EXAMPLES)
def test_at_most_three_lines_are_changed(name: str) -> None:
    before = (ROOT / "examples" / "plain" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    after = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8").splitlines()
    changes = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
    added = [line for line in changes if line.startswith("+")]
    assert any("send_message_back" in line for line in added)
    assert max(len(added), len(changes) - len(added)) <= 3


def hears_ctrl_c() -> None:
    """Also where these tests run in the background of a shell, which has its children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is stopped as Ctrl-C does it."""
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            preexec_fn=hears_ctrl_c,  # noqa: PLW1509 - no lock is held
        ) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.mark.kafka
@pytest.mark.parametrize("name", [*EXAMPLES, "docs"])
def test_it_works_and_what_failed_comes_again(here: Installation, tmp_path: Path, name: str) -> None:
    group, topic = here.unique(f"{name}-group"), here.unique(name)
    here.admin.create(topic, 1, -1, {})
    here.produce(topic, b'{"flight": 1545}' if name == "docs" else b"1545", b"cancelled")
    arguments = [here.settings.bootstrap_servers, group, topic]
    command = [sys.executable, "-m", f"examples.{name}", *arguments]
    if name == "docs":
        command = [sys.executable, "-c", program_of(PAGE, *arguments)]
    log = tmp_path / "log"
    with running(command, log) as process:
        wait_until(
            lambda: process.poll() is not None or len(here.retries(group)) >= 2, "it was sent back, and once more"
        )
    assert process.returncode == 0, log.read_text()
    assert "1545" in log.read_text()
    retries = here.retries(group)
    assert {record.value for record in retries} == {b"cancelled"}
    assert [record["RECONSUME_TIME"] for record in retries][:2] == ["1", "2"]


def program_of(page: Path, bootstrap_servers: str, group: str, topic: str) -> str:
    """The first program of a page, for this Kafka, group and topic."""
    program = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
    for shown, real in (
        ("localhost:9092", bootstrap_servers),
        ('"departures"', repr(group)),
        ('"flights"', repr(topic)),
    ):
        assert shown in program
        program = program.replace(shown, real)
    return str(program)
