"""The life of a sidecar process: probes, quiesce, drain, SIGTERM, kill -9, a Kafka that goes away."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.ports import free_port
from tests.integration.installation import Installation, installation, scheduler, settings_for
from tests.integration.sidecars import Answered, call, running_sidecar, sidecar_settings
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@contextmanager
def sidecar_process(settings: Settings, port: int, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`reconsume sidecar` as a user starts it, its management on the next port."""
    environment = os.environ | {"RECONSUME_TOPIC_PREFIX": settings.topic_prefix}
    command = [
        *(sys.executable, "-m", "reconsume", "sidecar", "--bootstrap-servers", settings.bootstrap_servers),
        *("--listen", f"127.0.0.1:{port}", "--management", "127.0.0.1:0", *options),
    ]
    with log.open("ab") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def send_back(port: int, group: str, body: Any) -> Answered | None:
    """None if there is no answer, as a client sees it while the sidecar is away."""
    try:
        return call(f"127.0.0.1:{port}", "POST", f"/v1/groups/{group}/send-back", body)
    except (OSError, http.client.HTTPException):
        return None


def until_done(port: int, group: str, body: Any) -> Answered:
    """What a client does: the same call again until it is answered with success."""

    def done() -> Answered | None:
        answered = send_back(port, group, body)
        assert answered is None or answered.status in (200, 503), answered
        return answered if answered is not None and answered.status == 200 else None

    found = wait_until(done, "the send-back is acknowledged")
    assert found is not None
    return found


def test_probes_and_metrics_tell_how_it_is(here: Installation) -> None:
    group, topic = here.name("probes"), here.topic("probes")
    here.produce(topic, b"1")
    with running_sidecar(sidecar_settings(here.settings)) as sidecar:
        assert sidecar.probe("/startupz").body == {"status": "ok", "phase": "running"}
        assert sidecar.probe("/livez").status == 200
        assert sidecar.probe("/readyz").body == {"status": "ok", "phase": "running"}
        checks = sidecar.probe("/readyz?verbose").body["checks"]
        assert checks == {"kafka": "ok", "topics": "ok", "earlier-send-backs": "ok"}
        assert sidecar.send_back(group, {"topic": topic, "partition": 0, "offset": 0}).status == 200
        metrics = sidecar.probe("/metrics").body.decode()
        assert f'reconsume_sidecar_send_backs_total{{group="{group}",outcome="DELAYED"}} 1.0' in metrics
        route = "/v1/groups/{group}/send-back"
        assert f'reconsume_sidecar_requests_total{{route="{route}",status="200"}} 1.0' in metrics
        assert sidecar.probe("/nothing").status == 404


def test_quiesced_it_is_not_ready_and_still_takes_send_backs(here: Installation) -> None:
    group, topic = here.name("quiesced"), here.topic("quiesced")
    here.produce(topic, b"1")
    with running_sidecar(sidecar_settings(here.settings)) as sidecar:
        for _ in range(2):
            assert sidecar.probe("/quiesce").body == {"phase": "quiescing", "inFlight": 0}
        assert sidecar.probe("/readyz").status == 503
        assert sidecar.probe("/livez").status == 200
        assert sidecar.probe("/startupz").status == 200
        assert sidecar.probe("/drain?wait=25").body == {"drained": True, "inFlight": 0}
        assert sidecar.probe("/drain?wait=soon").status == 422
        assert sidecar.send_back(group, {"topic": topic, "partition": 0, "offset": 0}).status == 200
    assert len(here.waiting(1_000, group)) == 1


def test_missing_topics_make_it_unready_and_say_what_to_do(bootstrap_servers: str) -> None:
    with running_sidecar(sidecar_settings(settings_for(bootstrap_servers)), ready=False) as sidecar:
        found = wait_until(
            lambda: (one := sidecar.probe("/readyz?verbose")).body["checks"]["kafka"] == "ok" and one, "an answer"
        )
        assert isinstance(found, Answered)
        assert found.status == 503
        assert "reconsume topics apply" in found.body["checks"]["topics"]


def test_sigterm_ends_it_in_order_and_the_address_is_free_again(here: Installation, tmp_path: Path) -> None:
    group, topic, port = here.name("term"), here.topic("term"), free_port()
    here.produce(topic, b"1")
    with sidecar_process(here.settings, port, tmp_path / "log") as process:
        assert until_done(port, group, {"topic": topic, "partition": 0, "offset": 0}).body["outcome"] == "DELAYED"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    log = (tmp_path / "log").read_text()
    assert re.search(rf"API: http://127\.0\.0\.1:{port}, management: http://127\.0\.0\.1:\d+", log)
    assert "the sidecar has stopped" in log
    assert len(here.waiting(1_000, group)) == 1


def test_killed_in_the_middle_nothing_is_lost_and_a_call_that_comes_again_makes_no_second_copy(
    here: Installation, tmp_path: Path
) -> None:
    total = 400
    group, topic, port = here.name("killed"), here.topic("killed"), free_port()
    here.produce(topic, *(b"%d" % number for number in range(total)))
    done: list[int] = []

    def client() -> None:
        for number in range(total):
            until_done(port, group, {"topic": topic, "partition": 0, "offset": number})
            done.append(number)

    calls = threading.Thread(target=client)
    with sidecar_process(here.settings, port, tmp_path / "log"):
        calls.start()
        wait_until(lambda: len(done) > total // 4, "a part is done")
    for part in (2, 3):
        with sidecar_process(here.settings, port, tmp_path / "log"):
            wait_until(lambda part=part: len(done) > part * total // 4, "more is done")  # type: ignore[misc]
    with sidecar_process(here.settings, port, tmp_path / "log"):
        calls.join(PATIENCE)
    assert not calls.is_alive()
    copies = [record["ORIGIN_MESSAGE_ID"] for record in here.waiting(1_000, group)]
    assert sorted(copies, key=str) == sorted((f"{topic}/0/{number}" for number in range(total)), key=str)


@pytest.mark.rule("CC-12")
def test_while_kafka_is_away_it_starts_and_callers_are_told_to_come_again_and_no_second_copy_is_made() -> None:
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic = here.name("away"), here.topic("away")
        here.produce(topic, b"0", b"1", b"late")
        asked = {"topic": topic, "partition": 0, "offset": 0}
        value = {"topic": topic, "partition": 0, "offset": 1, "value": "MQ=="}
        late = {"topic": topic, "partition": 0, "offset": 2}
        kafka.kill()
        with running_sidecar(sidecar_settings(here.settings, answer_seconds=1.5), ready=False) as sidecar:
            probes = [sidecar.probe(path).status for path in ("/startupz", "/livez", "/readyz")]
            assert probes == [200, 200, 503], "the app beside starts all the same"
            early = sidecar.send_back("g", late)
            assert (early.status, early.kind, early.headers["retry-after"]) == (503, "starting", "5")
            kafka.start()
            wait_until(lambda: sidecar.probe("/readyz").status == 200, "it is ready")
            # The connections that read and write may be later than those that ask whether Kafka is there.
            for name, call in (("g", late), (group, asked)):
                wait_until(lambda: sidecar.send_back(name, call).status == 200, "it is sent back")  # noqa: B023
            kafka.kill()
            for _ in range(3):
                away = sidecar.send_back(group, value)
                assert (away.status, away.kind, away.headers["retry-after"]) == (503, "kafka-away", "5")
            assert sidecar.send_back(group, asked).status == 503, "it would have to be read again"
            assert sidecar.probe("/livez").status == 200, "Kafka that is away is no reason for a restart"
            wait_until(lambda: sidecar.probe("/readyz").status == 503, "it is not ready")
            kafka.start()
            wait_until(lambda: sidecar.send_back(group, value).status == 200, "it is acknowledged")
            wait_until(lambda: sidecar.probe("/readyz").status == 200, "it is ready again")
            assert [record.value for record in here.waiting(1_000, group)] == [b"0", b"1"]
            with scheduler(here.settings):
                wait_until(lambda: len(here.retries(group)) == 2, "both came back")
