"""What was quarantined and released counts once, as what became of it; and a release that led nowhere is found."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from reconsume.cli.main import app
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import RELEASED, QuarantineMark
from reconsume.operations.quarantine.records import QuarantineRecord, read_quarantine
from reconsume.operations.record_address import RecordAddress
from reconsume.spark_connectors import Tolerances, reconcile
from reconsume.spark_connectors.reconcile import read_ledger
from reconsume.spark_connectors.reconcile.releases import Fates, Release, Standing, fates_of
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.early(3), pytest.mark.more]

GROUP: Final = "paris/a.b"
SMALL: Final = "small"
"""A group whose retry topic takes small records only."""
POISON: Final[dict[str, tuple[str, dict[str, str | None]]]] = {
    "nobody": ("DELAY.1s", {"REAL_TOPIC": None}),
    "large": ("DELAY.1s", {"REAL_TOPIC": f"%RETRY%{SMALL}", "large": "x" * 2_000}),
    "nameless": ("DELAY.1s", {"REAL_TOPIC": None, "RECONSUME_TIME": "many"}),
    "asked": ("SEND_BACK", {"RECONSUME_TIME": "many"}),
    "twice": ("DELAY.1s", {"REAL_TOPIC": None}),
    "stays": ("DELAY.1s", {"REAL_TOPIC": None}),
}
"""Records that cannot be delivered, by their value: where they are put, and what is wrong with them."""
TO_GROUP: Final = f"REAL_TOPIC=%RETRY%{GROUP}"
MENDED: Final = {
    "nobody": [TO_GROUP],
    "large": [],
    "nameless": [TO_GROUP, "RECONSUME_TIME=1"],
    "asked": ["RECONSUME_TIME=0"],
    "twice": [TO_GROUP],
}
Rows = list[Any]


class Quarantine:
    """The real commands, on an installation whose schedulers run when a test says so."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.scheduler = installation.settings.names.prefix + "scheduler"

    def command(self, *arguments: str) -> Any:
        settings = self.installation.settings
        where = {
            "RECONSUME_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
            "RECONSUME_TOPIC_PREFIX": settings.topic_prefix,
        }
        done = CliRunner().invoke(app, [*arguments, "-o", "json"], env=where)
        return json.loads(done.stdout)

    def records(self, value: str) -> list[QuarantineRecord]:
        return [one for one in read_quarantine(self.installation.cluster) if one.value == value.encode()]

    def newest(self, value: str) -> str:
        return str(self.records(value)[-1].place)

    def release(self, value: str, *headers: str) -> None:
        place = self.newest(value)
        assert self.command("quarantine", "show", place)["value"] == value
        changes = [part for header in headers for part in ("--header", header)]
        assert [one["record"] for one in self.command("quarantine", "release", place, *changes, "--yes")] == [place]
        assert self.command("quarantine", "show", place)["released"]

    def wait_for(self, value: str, copies: int) -> None:
        wait_until(lambda: len(self.records(value)) == copies, f"{value} is quarantined {copies} times")

    def arrived(self) -> list[str]:
        groups = (GROUP, SMALL)
        return [(one.value or b"").decode() for group in groups for one in self.installation.retries(group)]

    def take_up_to(self, size: int) -> None:
        """How large a record may be on the retry topic of `SMALL`."""
        topic = self.installation.settings.names.retry(SMALL)
        entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client = AdminClient(self.installation.settings.client_settings())
        client.incremental_alter_configs([wanted])[wanted].result()


@pytest.fixture(scope="module")
def quarantine(bootstrap_servers: str) -> Quarantine:
    """All of `POISON` is in it."""
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    here = Quarantine(one)
    one.admin.create(one.settings.names.retry(SMALL), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.take_up_to(1_000)
    for value, (topic, wrong) in POISON.items():
        usual: dict[str, str | None] = {
            "RETRY_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": f"orders/0/{len(value)}{value.encode()[0]}",
            "RECONSUME_TIME": "1",
            "DELAY": "3",
            "REAL_TOPIC": f"%RETRY%{GROUP}",
        }
        headers: list[Header] = [(name, text.encode()) for name, text in (usual | wrong).items() if text is not None]
        one.produce(one.settings.topic_prefix + topic, value.encode(), key=b"k", headers=headers)
    with scheduler(one.settings):
        for value in POISON:
            here.wait_for(value, 1)
    return here


def judged(spark: SparkSession, here: Quarantine, **more: Any) -> tuple[list[tuple[str, str]], Rows]:
    """Kind and commands of the findings, and the ledger."""
    settings = here.installation.settings
    found = reconcile(
        spark,
        settings.bootstrap_servers,
        topic_prefix=settings.topic_prefix,
        committed={here.scheduler: here.installation.all_committed(here.scheduler)},
        # Else levels are not judged before the table is a minute old.
        delay_levels=LEVELS,
        tolerances=Tolerances(late=dt.timedelta(hours=2)),
        **more,
    )
    findings = [(row.kind, "\n".join(row.commands)) for row in found.findings.collect()]
    rows = found.ledger.collect()
    found.close()
    assert not [row for row in rows if row.copy], "each is one attempt"
    return findings, rows


def states(rows: Rows) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    return counts


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("shared")
def test_a_released_record_has_one_state_before_and_after_and_in_a_ledger(
    spark: SparkSession, quarantine: Quarantine, tmp_path: Path
) -> None:
    here, names = quarantine, quarantine.installation.settings.names
    folder = str(tmp_path / "ledger")
    findings, rows = judged(spark, here, ledger=folder)
    assert (findings, states(rows)) == ([], {"quarantined": 6})
    here.release("twice")  # not mended
    with scheduler(here.installation.settings):
        here.wait_for("twice", 2)
        findings, rows = judged(spark, here, ledger=folder)
        assert (findings, states(rows)) == ([], {"quarantined": 6})
        here.take_up_to(1_000_000)
        for value, headers in MENDED.items():
            here.release(value, *headers)
        wait_until(lambda: sorted(here.arrived()) == sorted(MENDED), "the mended ones arrive")
    findings, rows = judged(spark, here)
    assert (findings, states(rows)) == ([], {"moved": 5, "quarantined": 1})
    # The first of these reads most records a second time, for they are younger than the overlap of two runs.
    for expected in ({"moved": 5, "quarantined": 1}, {"quarantined": 1}):
        findings, of_run = judged(spark, here, ledger=folder)
        assert (findings, states(of_run)) == ([], expected)
    assert states(read_ledger(spark, folder).collect()) == {"moved": 5, "quarantined": 1}
    for row in rows:
        lane = row.sent_topic
        if row.outcome == "quarantined":
            assert (row.group, lane, row.released) == (None, names.delay(1_000), None)
        elif row.inbox_topic is not None:
            assert (row.attempt, row.inbox_topic, row.released.split("/")[0]) == (1, names.send_back, names.send_back)
        else:
            assert (row.attempt, lane) == (1, names.delay(1_000))
            assert row.released.split("/")[0] == names.delay(0)
            assert row.appended < row.due <= row.delivered
    told = here.command("reconcile")
    assert (told["verdict"], told["attempts"], told["moved"], told["quarantined"]) == ("ok", 6, 5, 1)
    assert told["notes"] == {"QUARANTINED": 1}
    [left] = [one for one in here.command("quarantine", "list") if one["record"]]
    here.command("quarantine", "resolve", left["record"], "--why", "known", "--yes")
    told = here.command("reconcile")
    assert (told["verdict"], told["quarantined"], told["notes"]) == ("ok", 1, {})
    # It is settled, so the next run says nothing of it.
    for expected in ({"quarantined": 1}, {}):
        findings, of_run = judged(spark, here, ledger=folder)
        assert (findings, states(of_run), [row.notes for row in of_run]) == ([], expected, [[]] * len(of_run))


@pytest.mark.kafka
@pytest.mark.long
def test_a_release_that_led_nowhere_is_found(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    here, names = Quarantine(one), one.settings.names
    lane = names.delay(0)
    for number, value in enumerate(("waits", "skipped", "gone")):
        told = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": f"orders/0/{number}", "RECONSUME_TIME": "1", "DELAY": "3"}
        headers = [(name, text.encode()) for name, text in told.items()]
        one.produce(names.delay(1_000), value.encode(), key=b"k", headers=headers)
    with scheduler(one.settings):
        for value in ("waits", "skipped", "gone"):
            here.wait_for(value, 1)
    # Nobody delivers any more: what is released now waits.
    here.release("skipped", TO_GROUP)
    here.release("waits", TO_GROUP)
    # The second run knows the released ones from the ledger alone.
    for _ in range(2):
        findings, rows = judged(spark, here, ledger=str(tmp_path))
        assert (findings, states(rows)) == ([], {"waiting": 2, "quarantined": 1})
    skipped, waits = one.read(lane)
    # A scheduler that goes past the one and delivers it nowhere.
    faulty = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": here.scheduler})
    faulty.commit(offsets=[TopicPartition(lane, 0, skipped.offset + 1)], asynchronous=False)
    faulty.close()
    # One that nobody released has no business there; it is found at once.
    told = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "orders/0/9", "RECONSUME_TIME": "1", "DELAY": "3"}
    stray = [(name, text.encode()) for name, text in {**told, "REAL_TOPIC": f"%RETRY%{GROUP}"}.items()]
    one.produce(lane, b"stray", key=b"k", headers=stray)
    # And a mark whose copy is missing: at that offset is the end of a transaction.
    mark = QuarantineMark(RecordAddress.parse(here.newest("gone"), "reconsume quarantine list").offset, RELEASED)
    one.produce(names.quarantine, f"{lane}/0/{waits.offset + 1}".encode(), headers=mark.headers(), partition=0)
    # A mark that is younger than a transaction may last is not missed yet.
    findings, rows = judged(spark, here)
    kinds = sorted(kind for kind, _ in findings)
    assert (kinds, states(rows)) == (["LOST", "WRONG_LEVEL"], {"lost": 1, "waiting": 2, "quarantined": 1})
    assert f"-t {lane} -p 0 -o {skipped.offset} " in dict(findings)["LOST"]
    assert f"-t {lane} -p 0 -o {waits.offset + 2} " in dict(findings)["WRONG_LEVEL"]
    findings, rows = judged(spark, here, until=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1))
    kinds = sorted(kind for kind, _ in findings)
    assert (kinds, states(rows)) == (["LOST", "LOST", "WRONG_LEVEL"], {"lost": 2, "waiting": 2})
    gone = next(commands for _, commands in findings if f"-t {names.quarantine} " in commands)
    assert f"-o {here.newest('gone').split('/')[1]} " in gone


def release(held: str, source: str | None, went_to: str, stamp: int | None = 7) -> Release:
    return Release(held, source, went_to, 0, stamp)


@pytest.mark.parametrize(
    ("releases", "found", "missing", "fates"),
    [
        pytest.param([release("q/1", "a/1", "z/1")], {"z/1": 7}, [], Fates([("a/1", "z/1")], ["q/1"]), id="once"),
        pytest.param(
            [release("q/2", "z/1", "z/2"), release("q/1", "a/1", "z/1")],
            {"z/1": 7, "z/2": 7},
            [],
            Fates([("a/1", "z/2")], ["q/1", "q/2"]),
            id="twice",
        ),
        pytest.param(
            [release("q/1", "a/1", "z/1"), release("q/2", "z/1", "z/2")],
            {"z/1": 7},
            ["z/2"],
            Fates([("a/1", "z/1")], ["q/1"], [("q/2", "z/2")]),
            id="once and then nowhere",
        ),
        pytest.param([release("q/1", "a/1", "z/1")], {}, ["z/1"], Fates(missing=[("q/1", "z/1")]), id="nowhere"),
        pytest.param([release("q/1", "a/1", "z/1")], {}, [], Fates(), id="perhaps expired"),
        pytest.param(
            [release("q/1", "a/1", "z/1")], {"z/1": 8}, ["z/1"], Fates(missing=[("q/1", "z/1")]), id="another record"
        ),
        pytest.param([release("q/1", None, "z/1", None)], {"z/1": 7}, [], Fates([(None, "z/1")], ["q/1"]), id="window"),
        pytest.param([release("q/1", None, "z/1")], {}, ["z/1"], Fates(passed=["q/1"]), id="nobody's"),
        pytest.param([release("q/1", "z/1", "z/1")], {"z/1": 7}, [], Fates(stale=["q/1"]), id="in the ledger"),
        pytest.param(
            [release("q/1", "a/1", "z/1"), release("q/2", "a/2", "z/1")],
            {"z/1": 7},
            [],
            Fates([("a/1", "z/1")], ["q/1"]),
            id="two say the same",
        ),
        pytest.param([release("q/1", "a/1", "a/2"), release("q/2", "a/2", "a/1")], {"a/1": 7}, [], Fates(), id="round"),
    ],
)
def test_each_send_back_is_followed_to_where_it_is(
    releases: list[Release], found: dict[str, int], missing: list[str], fates: Fates
) -> None:
    assert fates_of(releases, found, missing) == fates


@pytest.mark.parametrize("found", [{}, {"z/1": 7}])
def test_what_a_ledger_has_settled_is_not_a_second_attempt(found: dict[str, int]) -> None:
    """The end of the way is not read again, the rest of it may be."""
    releases = [release("q/1", "a/1", "z/1"), release("q/2", "z/1", "z/2")]
    assert fates_of(releases, found, [], {"z/2"}) == Fates(passed=["q/1", "q/2"])
    assert fates_of(releases[1:], found, [], {"z/2"}) == Fates(passed=["q/2"])


def test_what_retention_may_have_deleted_is_not_missing() -> None:
    standing = Standing({"z/0/5": 7}, {"z/0": 5})
    assert not standing.is_missing("z/0/5", 7)
    assert not standing.is_missing("z/0/5", None)
    assert standing.is_missing("z/0/5", 8)  # another record has its offset
    assert standing.is_missing("z/0/6", 7)
    assert not standing.is_missing("z/0/4", 7)
    assert not standing.is_missing("z/1/6", 7)  # nothing is left there
