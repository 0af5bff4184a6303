"""The calls of docs/sidecar.md, by curl as a reader would make them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.installation import Installation, installation, settings_for
from tests.integration.sidecars import Running, running_sidecar, sidecar_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

PAGE = Path(__file__).parents[3] / "docs" / "sidecar.md"
BLOCKS = [
    block
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    if block.startswith("curl")
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str, topic: str) -> Iterator[Installation]:
    """As the page has the scheduler started."""
    allowed = re.findall(r"^RECONSUME_ALLOWED_REAL_TOPICS=(\S+) reconsume scheduler", PAGE.read_text(), re.MULTILINE)
    assert allowed == ["flights"]
    with installation(bootstrap_servers, allowed=[topic]) as one:
        yield one


@pytest.fixture(scope="module")
def topic(bootstrap_servers: str) -> str:
    one = Installation(settings_for(bootstrap_servers))
    topic = one.unique("flights")
    one.admin.create(topic, 1, -1, {})
    one.produce(topic, *(b"%d" % number for number in range(4)))
    return topic


@pytest.fixture(scope="module")
def sidecar(here: Installation) -> Iterator[Running]:
    with running_sidecar(sidecar_settings(here.settings)) as running:
        yield running


def test_the_page_has_calls() -> None:
    assert len(BLOCKS) == 5


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_call_of_the_page_succeeds(here: Installation, topic: str, sidecar: Running, block: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not on PATH")
    script = block.replace("127.0.0.1:15080", sidecar.api).replace('"flights"', f'"{topic}"')
    run = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    answers = [json.loads(line) for line in run.stdout.replace("}{", "}\n{").splitlines()]
    assert answers
    if "send-back" in block:
        outcomes = [one["outcome"] for one in answers[0].get("records", answers)]
        assert outcomes in (["DELAYED"], ["ACKNOWLEDGED", "DELAYED"])
    if "/v1/messages" in block:
        wait_until(lambda: b"check in" in [one.value for one in here.read(topic)], "the message on its topic")
