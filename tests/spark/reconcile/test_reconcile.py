"""Reconcile agrees with a count made in plain Python, and calls each fault by its name."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from reconsume.cli.spark import reconcile as command
from reconsume.cli.spark.options import SparkChoice
from reconsume.cli.spark.reconcile import ReconcileOptions
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors import Tolerances, reconcile, session
from reconsume.spark_connectors.reconcile import conservation, read_ledger, summarise
from tests.integration.installation import LATER, Deliveries, installation
from tests.spark.histories.copies import Copied, Copy, add, take, write
from tests.spark.histories.lived import MESSAGES, Lived
from tests.support.docs.pages import python_blocks
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(6)]

Wrong = set[tuple[str, str | None, str | None, int | None]]


def told(spark: SparkSession, bootstrap_servers: str, prefix: str, **more: Any) -> Wrong:
    """The findings by kind and attempt."""
    found = reconcile(spark, bootstrap_servers, topic_prefix=prefix, **more)
    rows = found.findings.collect()
    found.close()
    assert all(row.commands for row in rows)
    return {(row.kind, row.group, row.origin_message_id, row.attempt) for row in rows}


def keeps_nothing(spark: SparkSession) -> bool:
    """Whether Spark has no table in its cache."""
    return bool(spark._jsparkSession.sharedState().cacheManager().isEmpty())


def test_a_run_that_fails_leaves_nothing_in_sparks_cache(spark: SparkSession, lived: Lived) -> None:
    def ends(said: str) -> None:
        if said == "looking for the first copies":  # all its tables are there
            raise IllegalSetting(said)

    with pytest.raises(IllegalSetting, match="looking for the first copies"):
        reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, origins=True, progress=ends)
    assert keeps_nothing(spark)


def test_a_run_that_cannot_be_told_leaves_nothing_in_sparks_cache(
    spark: SparkSession, lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[str, Any]:
        raise IllegalSetting("no summary")

    monkeypatch.setattr(command, "summarise", fails)
    here = SparkChoice("local", None, {}, {})
    options = ReconcileOptions(None, "en", None, None, None, "1m", None, None, "1m", None, origins=False, spark=here)
    with (
        pytest.raises(IllegalSetting, match="no summary"),
        command.reconciled(spark, lived.installation.settings, options, dt.timedelta(minutes=1)) as found,
    ):
        command.found_in(found)
    assert keeps_nothing(spark)


def test_a_clean_history_agrees_with_a_count_made_without_spark(spark: SparkSession, lived: Lived) -> None:
    silent = lived.groups[1]
    known = (lived.groups[0], lived.prefix + "scheduler")
    committed = {group: lived.installation.all_committed(group) for group in known}
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, committed=committed)
    figures = summarise(found.ledger, found.now, found.since)
    everything = take(lived.bootstrap_servers, lived.prefix, lambda _record: True)
    waits = [one for one in everything.records if one.topic.startswith("DELAY.")]
    assert figures["verdict"] == "ok"
    assert figures["notes"] == {"QUARANTINED": 1}
    assert figures["attempts"] == len(waits) + 1  # the record that was quarantined never waited
    expected = Counter((one["REAL_TOPIC"], one.topic, int(one["DELAY"])) for one in waits)
    rows = found.ledger.where("sent_offset is not null").groupBy("group", "dead", "sent_topic", "level").count()
    counted = {
        (("%DLQ%" if row.dead else "%RETRY%") + row.group, row.sent_topic.removeprefix(lived.prefix), row.level): row[
            "count"
        ]
        for row in rows.collect()
    }
    assert counted == dict(expected)
    for row in figures["groups"]:
        moved = sum(one["REAL_TOPIC"] == "%RETRY%" + row["group"] for one in everything.of("RETRY."))
        dead = sum(one["REAL_TOPIC"] == "%DLQ%" + row["group"] for one in everything.of("DLQ."))
        assert (row["moved"], row["dead"], row["waiting"], row["lost"]) == (moved, dead, 0, 0)
        assert row["sent_back"] == moved + dead + row["quarantined"]
        # Of the other group nobody says what it has consumed.
        assert (row["consumed"], row["unread"]) == (0 if row["group"] == silent else moved, 0)
    assert {row["group"] for row in figures["groups"]} == set(lived.groups)
    quarter = MESSAGES // 4 * len(lived.groups)
    assert figures["tries"] == [{"retries": 1, "messages": quarter + 1}, {"retries": 2, "messages": quarter}]
    hourly = conservation(found.ledger).collect()
    assert sum(row.sent_back for row in hourly) == figures["attempts"]
    assert all(row.sent_back == row.moved + row.dead + row.quarantined for row in hourly)
    found.close()


def test_a_system_that_runs_gives_no_finding(spark: SparkSession, bootstrap_servers: str) -> None:
    with installation(bootstrap_servers) as one:
        group, topic, prefix = one.name("busy"), one.topic("busy.flights"), one.settings.topic_prefix
        scheduler = prefix + "scheduler"
        consumer = one.consumer(group, topic, Deliveries(lambda _messages, _context: LATER))
        consumer.start()
        try:
            for _ in range(3):
                one.produce(topic, *[b"%d" % number for number in range(100)])
                # Read first: what the schedulers have handled by then must be found afterwards.
                committed = {scheduler: one.all_committed(scheduler), group: one.all_committed(group)}
                assert told(spark, bootstrap_servers, prefix, committed=committed) == set()
        finally:
            consumer.shutdown()
        wait_until(lambda: len(one.retries(group)) > 300, "retries of all messages, and of some again")


def by_state(ledger: DataFrame) -> dict[tuple[str, str, int], int]:
    rows = ledger.groupBy("group", "outcome", "attempt").count().collect()
    return {(row.group, row.outcome, row.attempt): row["count"] for row in rows}


def broadcast_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each frame that is sent to all executors from now on."""
    broadcast, sizes = F.broadcast, list[int]()

    def counted(frame: DataFrame) -> DataFrame:
        sizes.append(frame.count())
        return broadcast(frame)

    monkeypatch.setattr(F, "broadcast", counted)
    return sizes


def test_a_ledger_grows_and_what_is_settled_is_not_read_again(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = write(lived.bootstrap_servers, taken)
    sent = [one for one in taken.of("DELAY.") if one.attempt[0] in lived.groups]
    outcomes = {"%RETRY%": "moved", "%DLQ%": "dead"}
    expected = Counter(
        (one.attempt[0], outcomes[one["REAL_TOPIC"].split(one.attempt[0])[0]], one.attempt[2]) for one in sent
    )
    times = sorted(one.timestamp for one in sent)
    # A copy is an hour earlier.
    middle = dt.datetime.fromtimestamp(times[len(times) // 2] / 1_000 - 3_600, dt.UTC)
    folder, rows = str(tmp_path / "ledger"), list[int]()
    for until in (middle, None, None):
        if len(rows) == 2:
            # Nothing limits what may be read again: a pause that was lifted may have released millions.
            monkeypatch.setattr(session, "_BROADCAST_ROWS", 0)
            sizes = broadcast_sizes(monkeypatch)
        found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, ledger=folder, until=until)
        assert found.findings.count() == 0
        rows.append(found.ledger.count())
        found.close()
    total = sum(expected.values())
    assert 0 < rows[0] < total
    assert sum(rows[:2]) == total  # all deliveries of the first part were there already
    assert rows[2] == 0
    assert max(sizes) <= len(lived.groups)
    assert by_state(read_ledger(spark, folder)) == expected
    with pytest.raises(IllegalSetting, match="has the ledger of the topics"):
        reconcile(spark, lived.bootstrap_servers, topic_prefix=lived.prefix, ledger=folder)


def test_a_window_judges_what_was_sent_back_in_it_and_tells_a_loss_of_before(
    spark: SparkSession, lived: Lived, taken: Copy
) -> None:
    """What is lost waited when the window before ended, so no other window tells it."""
    copy = Copy(taken.partitions, list(taken.records))
    sends = copy.of("DELAY.")
    last = max((one for one in sends if one.attempt[2] == 3), key=lambda one: one.timestamp)
    # It was due before the same message was sent back the second time, which is in the window.
    sent = copy.one("DELAY.", *last.attempt[:2], 1)
    copy.records.remove(copy.one("RETRY.", *sent.attempt))
    prefix = write(lived.bootstrap_servers, copy)
    # A copy is an hour earlier.
    times = [one.timestamp - 3_600_000 for one in sends]
    begin, end = sent.timestamp - 3_600_000 + 1, last.timestamp - 3_600_000
    since, until = (dt.datetime.fromtimestamp(at / 1_000, dt.UTC) for at in (begin, end))
    ends = Counter((prefix + one.topic, one.partition) for one in copy.of("DELAY."))
    committed = {prefix + "scheduler": ends}
    found = reconcile(
        spark, lived.bootstrap_servers, topic_prefix=prefix, since=since, until=until, committed=committed
    )
    wrong = {(row.kind, row.group, row.origin_message_id, row.attempt) for row in found.findings.collect()}
    assert wrong == {("LOST", *sent.attempt)}
    inside = sum(begin <= one < end for one in times)
    assert found.ledger.where(F.unix_millis("appended") >= begin).count() == inside > 0
    found.close()
    with pytest.raises(IllegalSetting, match="the window is empty"):
        reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, since=until, until=since)


def test_what_left_the_inbox_when_the_run_ended_is_not_lost(spark: SparkSession, lived: Lived, taken: Copy) -> None:
    """The schedulers' offsets are of later: they have passed the inbox, and the record waits on its delay topic."""
    copy = Copy(taken.partitions, list(taken.records))
    back = copy.of("RETRY.")[len(copy.of("RETRY.")) // 2]
    copy.records.remove(back)
    sent = copy.one("DELAY.", *back.attempt)
    asked = sent.changed(topic="SEND_BACK", later_ms=-10, RECONSUME_TIME=b"%d" % (sent.attempt[2] - 1))
    copy.records.append(replace(asked, partition=0))
    prefix = write(lived.bootstrap_servers, copy)
    # A copy is an hour earlier.
    until = dt.datetime.fromtimestamp(sent.timestamp / 1_000 - 3_600, dt.UTC)
    handled = [one for one in copy.records if one.topic.startswith("DELAY.") or one.topic == "SEND_BACK"]
    ends = Counter((prefix + one.topic, one.partition) for one in handled)
    committed = {prefix + "scheduler": ends}
    assert told(spark, lived.bootstrap_servers, prefix, until=until, committed=committed) == set()


def test_what_the_inbox_lost_is_judged_by_the_groups_settings_of_then(
    spark: SparkSession, lived: Lived, taken: Copy
) -> None:
    """Each group sends one record back; some of them switch retries off or on ten minutes before or later."""
    sent, copy = taken.of("DELAY.")[0], Copy(taken.partitions, [])
    before, after = -600_000, 600_000
    for group, later_ms, queues in (
        ("off", before, 0),
        ("on", before, 1),
        ("off later", before, 1),
        ("on again", before, 0),
        ("off later", after, 0),
        ("on again", after, 1),
    ):
        value = json.dumps({"groupName": group, "retryQueueNums": queues}).encode()
        copy.records.append(Copied("GROUPS", 0, sent.timestamp + later_ms, group.encode(), value, ()))
    for group in ("off", "on", "off later", "on again"):
        asked = sent.changed(topic="SEND_BACK", REAL_TOPIC=f"%RETRY%{group}".encode())
        copy.records.append(replace(asked, partition=0))
    prefix = write(lived.bootstrap_servers, copy)
    committed = {prefix + "scheduler": {(prefix + "SEND_BACK", 0): 4}}
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, committed=committed)
    judged = {row.group: (row.outcome, *row.findings, *row.notes) for row in found.ledger.collect()}
    found.close()
    assert judged == {
        "off": ("dropped", "DROPPED"),
        "on": ("lost", "LOST"),
        "off later": ("dropped", "MAYBE_DROPPED"),
        "on again": ("dropped", "MAYBE_DROPPED"),
    }


def test_a_second_look_takes_only_what_seems_lost_to_all_executors(
    spark: SparkSession, lived: Lived, taken: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two hours with 10,000 deliveries a second Spark could not make such a table."""
    copy = Copy(taken.partitions, list(taken.records))
    late = copy.of("RETRY.")[-20:]
    for one in late:
        copy.records.remove(one)
    prefix = write(lived.bootstrap_servers, copy)
    add(lived.bootstrap_servers, prefix, late[1:])
    ends = Counter((prefix + one.topic, one.partition) for one in copy.of("DELAY."))
    sizes = broadcast_sizes(monkeypatch)
    more = {"committed": {prefix + "scheduler": ends}, "tolerances": Tolerances(late=dt.timedelta(hours=2))}
    assert told(spark, lived.bootstrap_servers, prefix, **more) == {("LOST", *late[0].attempt)}
    assert sizes
    assert max(sizes) <= len(lived.groups), "the settings of groups, and what seems lost"
    # Many, as after the deletion of a retry topic, are joined as tables: a driver has no room for them.
    few = len(sizes)
    sizes.clear()
    monkeypatch.setattr(session, "_BROADCAST_ROWS", 0)
    assert told(spark, lived.bootstrap_servers, prefix, **more) == {("LOST", *late[0].attempt)}
    assert len(sizes) == few - 2


def test_a_first_copy_that_was_compacted_away_is_noted(spark: SparkSession, lived: Lived, taken: Copy) -> None:
    copy = Copy(taken.partitions, list(taken.records))
    one = copy.of("DLQ.")[0]
    gone = one["ORIGIN_MESSAGE_ID"].rpartition("/")[0] + "/999999999"
    mine = [other for other in copy.records if other["ORIGIN_MESSAGE_ID"] == one["ORIGIN_MESSAGE_ID"]]
    for other in mine:
        copy.swap(other, other.changed(ORIGIN_MESSAGE_ID=gone.encode()))
    prefix = write(lived.bootstrap_servers, copy)
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, origins=True)
    notes = {(row.kind, row.origin_message_id) for row in found.notes.collect()}
    assert (notes, found.findings.count()) == ({("ORIGIN_GONE", gone)}, 0)
    found.close()
    assert keeps_nothing(spark)


def test_the_programs_of_the_page_run(
    spark: SparkSession, lived: Lived, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = [one for one in python_blocks(complete=False) if one.where.startswith("docs/reconcile.md")]
    here = f'"{lived.bootstrap_servers}", topic_prefix="{lived.prefix}"'
    names: dict[str, object] = {"spark": spark}
    for program in programs:
        # Topics of this test, and a folder; the second program goes on in the session of the first.
        text = program.text.replace('"localhost:9092"', here).replace("/data/ledger", str(tmp_path / "ledger"))
        text = text.replace(f'{here}, "{tmp_path}/ledger"', f'"{lived.bootstrap_servers}", "{tmp_path}/ledger"')
        text = text.replace('/ledger").awaitTermination', f'/ledger", topic_prefix="{lived.prefix}").awaitTermination')
        exec(compile(text, program.where, "exec"), names)  # noqa: S102 - our own page
    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"[-0-9]+ [:.0-9]+\+00:00 0", shown[0])
    assert "ok" in shown
