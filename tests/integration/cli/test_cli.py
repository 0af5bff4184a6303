"""The commands as a user types them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(3), pytest.mark.more]

GUARD_AND_WORKER = 2
"""Processes whose command line names an instance."""
Run = Callable[..., subprocess.CompletedProcess[str]]


def reconsume(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reconsume", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def one(bootstrap_servers: str) -> Installation:
    return Installation(settings_for(bootstrap_servers))


@pytest.fixture
def run(one: Installation) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        settings = one.settings
        return reconsume(
            *arguments,
            RECONSUME_BOOTSTRAP_SERVERS=settings.bootstrap_servers,
            RECONSUME_TOPIC_PREFIX=settings.topic_prefix,
        )

    return run


def test_topics_are_planned_made_once_and_never_without_a_yes(run: Run, one: Installation) -> None:
    plan = json.loads(run("topics", "plan", "-o", "json").stdout)
    assert len(plan["missing"]) == 27
    refused = run("topics", "apply")
    assert refused.returncode == 2
    assert "Standard input is not a terminal; pass --yes" in refused.stderr
    assert one.admin.partitions([one.settings.names.groups]) == {}
    made = run("topics", "apply", "--yes", "-o", "json")
    assert len(json.loads(made.stdout)["made"]) == 27
    assert "none is missing" in run("topics", "apply", "--yes").stdout


def test_groups_are_set_and_shown_and_the_plan_follows(run: Run, one: Installation) -> None:
    one.make_topics()
    policy = '{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1500, "max": 3000, "multiplier": 2}}'
    assert run("groups", "set", "g", "--retry-max-times", "3", "--retry-policy", policy).returncode == 0
    assert run("groups", "set", "--delay-levels", "1s 9s", "--no-auto-create", "--yes").returncode == 0
    listed = json.loads(run("groups", "list", "-o", "json").stdout)
    assert listed["system"] == {"messageDelayLevel": "1s 9s", "autoCreateSubscriptionGroup": False}
    assert [(group["groupName"], group["retryMaxTimes"]) for group in listed["groups"]] == [("g", 3)]
    assert json.loads(run("groups", "get", "g").stdout)["groupRetryPolicy"]["type"] == "EXPONENTIAL"
    unknown = run("groups", "get", "other")
    assert (unknown.returncode, "SUBSCRIPTION_GROUP_NOT_EXIST" in unknown.stderr) == (2, True)
    missing = {topic["name"] for topic in json.loads(run("topics", "plan", "-o", "json").stdout)["missing"]}
    names = one.settings.names
    assert {names.delay(1_500), names.delay(3_000), names.delay(9_000), names.retry("g")} <= missing
    wrong = run("groups", "set", "--delay-levels", "1s  9s")
    assert (wrong.returncode, "exactly one space" in wrong.stderr, "Traceback" in wrong.stderr) == (2, True, False)


@pytest.mark.rule("BR-09", "SB-16")
def test_a_record_is_sent_back_by_hand_and_seen_in_the_status(run: Run, one: Installation) -> None:
    one.make_topics()
    one.write_groups()
    topic = one.topic("orders")
    one.produce(topic, b"v", key=b"k", headers=[("h", b"1")])
    sent = run("send-back", "--group", "g", "--message", f"{topic}/0/0", "--delay-level", "4", "-o", "json")
    assert json.loads(sent.stdout) == {"message": f"{topic}/0/0", "group": "g", "reconsumeTimes": 1}
    (record,) = one.waiting(2_000, "g")
    assert (record.key, record.value, record["DELAY"], record["h"]) == (b"k", b"v", "4", "1")
    waiting = {line["topic"]: line["waiting"] for line in json.loads(run("status", "-o", "json").stdout)["waiting"]}
    assert waiting[one.settings.names.delay(2_000)] == 1
    nothing = run("send-back", "--group", "g", "--message", f"{topic}/0/7")
    assert (nothing.returncode, "look message by offset failed" in nothing.stderr) == (2, True)
    assert "must be <topic>/<partition>/<offset>" in run("send-back", "--group", "g", "--message", "x").stderr


def test_a_broker_that_is_away_is_told_in_one_line() -> None:
    away = reconsume("status", RECONSUME_BOOTSTRAP_SERVERS="127.0.0.1:9")
    assert away.returncode == 2
    assert "no connection to Kafka: 127.0.0.1:9 refuses the connection" in away.stderr
    assert "Traceback" not in away.stderr


def test_a_wrong_setting_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text("[scheduler]\nworkers = 3\n")
    wrong = reconsume("scheduler", "--config", str(file))
    assert (wrong.returncode, "Traceback" in wrong.stderr) == (2, False)
    assert f"setting scheduler.workers (file {file}): unknown setting" in wrong.stderr


@pytest.mark.long
def test_the_demo_takes_rows_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv.gz"
    lines = ["id,state", *(f"{number},{'fine' if number % 10 else 'broken'}" for number in range(200))]
    file.write_bytes(gzip.compress("\n".join(lines).encode()))
    done = reconsume("demo", "--input", str(file), "--key", "id", "--fail-if", "state=broken", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, "the listener fails on purpose"
    report = json.loads(done.stdout)
    assert (report["produced"], report["dead_letters"]) == (200, 20)
    assert (report["lost"], report["early"], report["duplicates"]) == (0, 0, 0)
    assert sum(report["succeeded_after"].values()) == 180
    assert set(report["lateness_ms"]) == {"p50", "p99", "max"}
    assert set(report["sent_back"]) == {"3", "4", "5"}
    assert report["delivered"] == 200 + sum(report["sent_back"].values())
    told = report["reconcile"]
    assert (told["verdict"], told["dead"], told["waiting"]) == ("ok", 20, 0)
    assert told["moved"] == sum(report["sent_back"].values())
    page = Path(told["report"])
    assert "Every failed message ended in exactly one state" in page.read_text(encoding="utf-8")
    shutil.rmtree(page.parent)


def is_scheduler(process: psutil.Process) -> bool:
    """Or its guard; one that has just ended is neither."""
    with suppress(psutil.Error):
        return "--instance-id" in process.cmdline()
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_ends_early_leaves_no_process_behind(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-m", "reconsume", "demo"], stderr=subprocess.DEVNULL) as demo:

        def begun() -> list[psutil.Process]:
            found = psutil.Process(demo.pid).children(recursive=True)
            return found if sum(is_scheduler(one) for one in found) >= GUARD_AND_WORKER else []

        left = wait_until(begun, "a scheduler runs")
        demo.send_signal(number)
        demo.wait(PATIENCE)
    wait_until(lambda: not any(one.is_running() for one in left), "Kafka and the scheduler are gone")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fail-if", "state"], "write COLUMN=VALUE"),
        (["-o", "xml"], "use table or json"),
        (["--input", "/nowhere.csv"], "--input"),
        (["--key", "nope"], "the column does not exist; the columns are"),
    ],
)
def test_a_wrong_argument_of_the_demo_is_told(arguments: list[str], said: str) -> None:
    wrong = reconsume("demo", *arguments)
    assert wrong.returncode == 2
    assert said in wrong.stderr
    assert "Traceback" not in wrong.stderr
