"""A sidecar's memory is bounded while Kafka is away, whatever its callers send."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconsume.cli.broker.ports import free_port
from tests.integration.installation import Installation, settings_for
from tests.integration.sidecar.test_process import send_back, sidecar_process, until_done
from tests.integration.sidecars import Answered, b64, call
from tests.support.brokers.kafka import kafka_to_kill

pytestmark = [pytest.mark.kafka, pytest.mark.early(1)]

LARGE = b64(b"x" * 1_000_000)
CALLS = 400
LIMIT_MIB = 512
"""Of the container, in the chart."""


def peak_mib(process: int) -> float:
    """The most memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux")
def test_large_send_backs_while_kafka_is_away_take_no_more_than_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECONSUME_SIDECAR__ANSWER_SECONDS", "1")
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic, port, log = here.name("large"), here.topic("large"), free_port(), tmp_path / "log"

        def record(offset: int) -> dict[str, object]:
            return {"topic": topic, "partition": 0, "offset": offset, "value": LARGE}

        with sidecar_process(here.settings, port, log) as process:
            assert until_done(port, group, record(0)).body["outcome"] == "DELAYED"
            kafka.kill()
            with ThreadPoolExecutor(16) as clients:
                calls = (clients.submit(send_back, port, group, record(offset)) for offset in range(1, CALLS))
                answers = [one.result() for one in list(calls)]
            told = Counter(answer.kind if answer is not None else "none" for answer in answers)
            assert set(told) == {"kafka-away", "too-many-waiting"}, told
            assert {(one.status, one.headers["retry-after"]) for one in answers if one is not None} == {(503, "5")}
            small = call(f"127.0.0.1:{port}", "GET", "/openapi.json")
            assert small.status == 200, "what needs no memory is answered"
            peak = peak_mib(process.pid)
            assert peak < LIMIT_MIB, (peak, told)
            kafka.start()
            waited = [offset for offset, one in enumerate(answers, 1) if one is not None and one.kind == "kafka-away"]
            refused = [offset for offset, one in enumerate(answers, 1) if offset not in waited]
            again = [*waited[:5], *refused[:5]]
            done: list[Answered] = [until_done(port, group, record(offset)) for offset in again]
            assert {one.body["outcome"] for one in done} == {"DELAYED"}
        copies = Counter(one["ORIGIN_MESSAGE_ID"] for one in here.waiting(1_000, group))
        assert [copies[f"{topic}/0/{offset}"] for offset in itertools.chain([0], again)] == [1] * 11
        assert max(copies.values()) == 1
