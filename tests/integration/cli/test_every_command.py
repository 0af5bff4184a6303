"""Every command once for people and once as JSON, on an installation whose records, groups and topics are hostile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from typer.testing import CliRunner, Result

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.groups.groups_store import write_group
from reconsume.bridge.kafka.single_records import write_records
from reconsume.cli.main import app
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.positions import StoredPosition, encode_position, position_key
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.jobs.service import JobDraft, create, pause
from tests.integration.installation import Installation, settings_for
from tests.support.docs.commands import RUN_UNTIL_STOPPED, leaf_commands
from tests.support.hostile import HOSTILE, assert_harmless

pytestmark = pytest.mark.kafka

ROOT: Final = Path(__file__).parents[3]
GROUP: Final = "[red]orders[/red] \x1b]0;x\x07\u202e"
CAUSE: Final = "cannot open [/data/in.csv], missing [orders]"


class Case(NamedTuple):
    """A command line, what it shows to people, and how it ends."""

    arguments: Callable[[Installation, Path], list[str]]
    shows: str = ""
    exit_code: int = 0


def given(*arguments: str) -> Callable[[Installation, Path], list[str]]:
    return lambda _here, _folder: list(arguments)


def groups_file(*more: str) -> Callable[[Installation, Path], list[str]]:
    def arguments(here: Installation, folder: Path) -> list[str]:
        file = folder / "groups.yaml"
        file.write_text(json.dumps({"groups": {here.unique("[red]a[/red]\x1b[2J"): {"retryMaxTimes": 3}}}))
        return ["-f", str(file), *more]

    return arguments


def registered(here: Installation, _folder: Path) -> list[str]:
    group = here.unique(GROUP)
    write_group(here.cluster, SubscriptionGroupConfig(group_name=group))
    return [group, "--yes"]


def sent_back(here: Installation, _folder: Path) -> list[str]:
    topic = here.topic(here.unique("flights"))
    here.produce(topic, b"v")
    return ["--group", GROUP, "--message", f"{topic}/0/0", "--cause", HOSTILE]


def quarantined(here: Installation, _folder: Path) -> list[str]:
    """A record of its own, for it is closed once."""
    topic = here.settings.names.quarantine
    headers = quarantine_headers([], HOSTILE, Position(here.settings.names.delay(0), 0, 0), 0)
    here.produce(topic, b"v", headers=headers)
    return [f"0/{here.admin.end_offsets([(topic, 0)])[topic, 0] - 1}", "--yes"]


def delayed(here: Installation, _folder: Path) -> list[str]:
    """A delayed message that waits, for a day."""
    lane, due_ms = here.settings.names.delay(2_000), int((time.time() + 86_400) * 1_000)
    headers = [
        ("REAL_TOPIC", b"[red]wait[/red]"),
        ("UNIQ_KEY", here.unique(HOSTILE).encode()),
        ("TIMER_DELIVER_MS", b"%d" % due_ms),
    ]
    here.produce(lane, b"v", headers=headers, partition=0)
    return [f"{lane}/0/{here.admin.end_offsets([(lane, 0)])[lane, 0] - 1}", "--yes"]


def dead(here: Installation, _folder: Path) -> list[str]:
    """A dead letter of a group of its own."""
    group = here.unique(GROUP)
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(topic, b"v", headers=[("ORIGIN_MESSAGE_ID", HOSTILE.encode())])
    return [group, "0/0"]


def job(here: Installation, folder: Path) -> list[str]:
    """A job of a group of its own, which nobody runs."""
    [group, _] = dead(here, folder)
    draft = JobDraft("resend", group, DeadLetterFilter(text=HOSTILE, label=HOSTILE, origin_topic=HOSTILE))
    return [create(here.cluster, draft, by=HOSTILE, why=HOSTILE).name]


def paused(here: Installation, folder: Path) -> list[str]:
    [name] = job(here, folder)
    pause(here.cluster, name, by=HOSTILE, why=HOSTILE)
    return [name]


CASES: Final = {
    "topics plan": Case(given(), "topics"),
    "topics apply": Case(given("--yes"), "topics"),
    "topics acls": Case(given("--role", "consumer", "--group", GROUP, "--topic", "flights"), "kafka-acls.sh"),
    "groups list": Case(given(), "[red]orders[/red]"),
    "groups get": Case(given(GROUP), "[red]orders[/red]"),
    "groups set": Case(given(GROUP, "--retry-max-times", "4"), "[red]orders[/red]"),
    "groups delete": Case(registered, "is no longer registered"),
    "groups plan": Case(groups_file(), "+ group [red]a[/red]", 1),
    "groups apply": Case(groups_file("--yes"), "applied"),
    "doctor": Case(given("--no-send-record"), "[red]nobody can read this[/red]", 1),
    "send-back": Case(sent_back, "is sent back for group [red]orders[/red]"),
    "status": Case(given(), "[red]orders[/red]"),
    "dlq list": Case(given(GROUP), CAUSE),
    "dlq show": Case(given(GROUP, "0/0"), CAUSE),
    "dlq export": Case(given(GROUP, "--format", "csv"), CAUSE),
    "dlq resend": Case(given(GROUP, "--all", "--yes"), "sent again"),
    "dlq resolve": Case(lambda *of: [*dead(*of), "--why", HOSTILE, "--yes"], "1  resolved"),
    "dlq reopen": Case(dead, "1  left as they were: open"),
    "delay list": Case(given("--limit", "1000"), "[red]wait[/red]"),
    "delay cancel": Case(delayed, "withdrawn"),
    "delay deliver-now": Case(delayed, "delivered now"),
    "jobs list": Case(lambda *of: job(*of) and [], "[red]orders[/red]"),
    "jobs show": Case(job, CAUSE),
    "jobs pause": Case(lambda *of: [*job(*of), "--why", HOSTILE], "is paused"),
    "jobs resume": Case(paused, "continues with the next free runner"),
    "jobs cancel": Case(job, "is cancelled"),
    "quarantine list": Case(given(), CAUSE),
    "quarantine show": Case(given("0/0"), CAUSE),
    "quarantine export": Case(given(), CAUSE),
    "quarantine release": Case(lambda *of: [*quarantined(*of), "--header", f"REAL_TOPIC=%RETRY%{GROUP}"], "1 released"),
    "quarantine resolve": Case(lambda *of: [*quarantined(*of), "--why", HOSTILE], "1 resolved"),
    "positions list": Case(given(), "[red]worker[/red]"),
    "positions reset": Case(given("--all", "--yes"), "position removed"),
    "config check": Case(given(), "ok"),
    "config show": Case(given("-o", "table", "-X", "client.rack=[red]"), "bootstrap_servers"),
    "config schema": Case(given(), "bootstrap_servers"),
}
ELSEWHERE: Final = {
    "jobs run": (
        "tests/integration/operations/test_jobs_killed.py",
        "test_a_resend_whose_process_is_killed_three_times_sends_each_once",
    ),
    "broker": ("tests/integration/cli/test_local_kafka.py", "test_the_command_says_as_json_where_kafka_is"),
    "demo": ("tests/unit/cli/test_reports.py", "test_the_demo_tells_its_figures"),
    "chaos": ("tests/unit/cli/test_reports.py", "test_chaos_tells_its_figures"),
    "reconcile": (
        "tests/unit/cli/test_reports.py",
        "test_reconcile_tells_its_figures_and_hostile_findings",
    ),
    "replay": ("tests/unit/cli/test_reports.py", "test_a_replay_tells_its_plan_and_hostile_causes"),
}
"""Those that need more than a Kafka."""


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    known = SubscriptionGroupConfig(group_name=GROUP)
    one.make_topics([known])
    one.write_groups([known])
    names = one.settings.names
    write_records(one.cluster, names.groups, [("[red]nobody can read this[/red]" + HOSTILE, HOSTILE)])
    user: list[Header] = [(HOSTILE, HOSTILE.encode()), ("binary", b"\x00\xff\x1b[2J")]
    letter = {
        "RETRY_TOPIC": HOSTILE,
        "ORIGIN_MESSAGE_ID": "[bold]flights/0/7",
        "RECONSUME_TIME": "17",
        "REAL_TOPIC": f"%DLQ%{GROUP}",
        "__dlq.errors.message": HOSTILE,
        "__dlq.errors.exception.class": HOSTILE,
        "__dlq.errors.stacktrace": HOSTILE,
    }
    ours: list[Header] = [(name, value.encode()) for name, value in letter.items()]
    one.produce(names.dead_letter(GROUP), HOSTILE.encode(), key=HOSTILE.encode(), headers=[*user, *ours])
    poison = quarantine_headers(user, HOSTILE, Position(names.delay(0), 0, 0), 0)
    one.produce(names.delay(2_000), HOSTILE.encode(), headers=[("REAL_TOPIC", f"[red]wait[/red]{HOSTILE}".encode())])
    one.produce(names.quarantine, HOSTILE.encode(), key=HOSTILE.encode(), headers=poison)
    return one


@pytest.fixture
def run(here: Installation, tmp_path: Path) -> Callable[..., Result]:
    lane = here.settings.names.delay(0)
    position = StoredPosition(0, "", here.admin.topic_ids({lane})[lane], "[red]worker[/red]" + HOSTILE)
    write_records(here.cluster, here.settings.names.positions, [(position_key(lane, 0), encode_position(position))])
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
    }

    def run(name: str, *more: str) -> Result:
        arguments = [*name.split(), *CASES[name].arguments(here, tmp_path), *more]
        done = CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False)
        assert done.exit_code == CASES[name].exit_code, done.output
        assert_harmless(done.output)
        return done

    return run


@pytest.mark.parametrize("name", CASES)
def test_it_prints_for_people(name: str, run: Callable[..., Result]) -> None:
    assert_harmless(run(name).stdout, shows=CASES[name].shows)


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"dlq export", "quarantine export"}))
def test_it_prints_json(name: str, run: Callable[..., Result]) -> None:
    json.loads(run(name, "-o", "json").stdout)


def test_an_export_is_json_lines_and_says_how_many_beside_them(run: Callable[..., Result]) -> None:
    done = run("dlq export", "--format", "jsonl", "-o", "json")
    [row] = map(json.loads, done.stdout.splitlines())
    assert (row["cause"], row["value"], row["retries"]) == (HOSTILE, HOSTILE, 16)
    assert json.loads(done.stderr) == {"group": GROUP, "exported": 1}


def test_no_command_is_left_out() -> None:
    assert CASES.keys() | ELSEWHERE.keys() | RUN_UNTIL_STOPPED == leaf_commands().keys()


@pytest.mark.parametrize("where", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_is_tested_elsewhere_is(where: tuple[str, str]) -> None:
    file, test = where
    assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")
