"""A member closes while an assignment waits to be polled (librdkafka's issue 4884), in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.bridge.librdkafka import closes
from tests.integration.installation import Installation, installation

pytestmark = pytest.mark.kafka

AT_RISK = "received op TERMINATE in state up (join-state wait-assign-call)"
"""What librdkafka says of a close that may hang."""
STATIC: dict[str, Any] = {"group.instance.id": "first"}
COOPERATIVE: dict[str, Any] = {"partition.assignment.strategy": "cooperative-sticky"}
NEW: dict[str, Any] = {"group.protocol": "consumer"}


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.mark.parametrize("kind", ["drop-in", "member"])
@pytest.mark.parametrize("conf", [{}, COOPERATIVE, NEW, STATIC, STATIC | COOPERATIVE, STATIC | NEW])
def test_it_ends_though_an_assignment_waits(here: Installation, kind: str, conf: dict[str, Any]) -> None:
    group = here.unique("closes")
    settings = here.settings.client_settings() | conf | {"group.id": group, "debug": "cgrp"}
    given = json.dumps([kind, settings, here.topic(here.unique("flights")), here.settings.topic_prefix])
    command = [sys.executable, closes.__file__, given]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None
            assert any("-> wait-assign-call" in line for line in program.stderr), "the program ended"
            _, told = program.communicate("close\n", timeout=60)
        finally:
            program.kill()
    assert program.returncode == 0, told
    assert AT_RISK not in told
    assert ("told the program" in told) == (kind == "drop-in")
