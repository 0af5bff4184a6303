"""Records that retention has deleted, or somebody by hand: neither lost, nor orphans; what is not known is told."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.cli.spark.reconcile import read_extents
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.spark_connectors import Tolerances, read_retries, reconcile
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.reconcile import Extent, summarise
from reconsume.spark_connectors.reconcile.records.deleted import DeletedRecords
from reconsume.spark_connectors.replay import plan_replay, replay_stream
from reconsume.spark_connectors.session import local_rows
from tests.integration.installation import settings_for
from tests.spark.histories.copies import Copied, Copy, add, write
from tests.spark.histories.dead_letters import GROUP, dead_letter_headers, replayed, with_dead_letters
from tests.spark.histories.history import headers
from tests.spark.histories.lived import Lived

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(3)]

Attempt = tuple[str, str, int]
Place = tuple[str, int]
LYING = {"BORN_TIMESTAMP": b"1", "FIRST_FAILURE_TIMESTAMP": b"253402300799999"}
"""Headers with times of clocks that are decades behind and ahead."""


def delete(bootstrap_servers: str, before: dict[Place, int]) -> None:
    """As retention does: nothing is left before these offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = [TopicPartition(*place, offset) for place, offset in before.items()]
    for future in admin.delete_records(wanted).values():
        future.result()


def places_of(copy: Copy, prefix: str) -> dict[int, tuple[Place, int]]:
    """Where each record of a copy stands, by its number in it."""
    ends: Counter[Place] = Counter()
    places = {}
    for number, one in enumerate(copy.records):
        place = prefix + one.topic, one.partition
        places[number] = place, ends[place]
        ends[place] += 1
    return places


def with_lies_and_faults(taken: Copy, group: str) -> tuple[Copy, list[tuple[str, str, str, int]]]:
    """All headers with times are wrong; and three faults, which must be found beside all that is gone."""
    copy = Copy(taken.partitions, [one.changed(LYING) if one["REAL_TOPIC"] else one for one in taken.records])
    last, stays = copy.of("DLQ.", where=lambda one: one.attempt[0] == group)[-2:]
    copy.records.remove(last)
    copy.records.append(stays.changed(ORIGIN_MESSAGE_ID=b"never/0/1"))
    sent = copy.of("DELAY.2s")[-1]
    ghost = sent.changed(REAL_TOPIC=b"%RETRY%ghost", ORIGIN_MESSAGE_ID=b"flights/0/7")
    copy.records.append(ghost)
    return copy, [("LOST", *last.attempt), ("ORPHAN", group, "never/0/1", 3), ("LOST", *ghost.attempt)]


def test_what_was_deleted_is_not_judged_and_what_is_wrong_beside_it_is_found(
    spark: SparkSession, lived: Lived, taken: Copy
) -> None:
    """A delay topic wholly, half of another one and of a retry topic, a dead-letter topic wholly."""
    group, other = lived.groups
    copy, wrong = with_lies_and_faults(taken, group)
    prefix = write(lived.bootstrap_servers, copy)
    settings = settings_for(lived.bootstrap_servers, prefix)
    places = places_of(copy, prefix)
    ends: Counter[Place] = Counter(place for place, _ in places.values())
    names = settings.names
    gone: dict[Place, int] = {}
    for place, end in ends.items():
        if place[0] in (names.delay(1_000), names.dead_letter(other)):
            gone[place] = end
        elif place[0] in (names.delay(2_000), names.retry(other)):
            gone[place] = end // 2
    assert len({topic for topic, _ in gone}) == 4
    delete(lived.bootstrap_servers, gone)
    left = [copy.records[number] for number, (place, offset) in places.items() if offset >= gone.get(place, 0)]
    sent, back = (
        {one.attempt for one in left if one.topic.startswith(kinds)} for kinds in ("DELAY.", ("RETRY.", "DLQ."))
    )
    committed = {names.prefix + "scheduler": dict(ends)}
    found = reconcile(
        spark,
        lived.bootstrap_servers,
        topic_prefix=prefix,
        committed=committed,
        extents=partial(read_extents, Cluster(settings)),
    )
    rows = found.ledger.collect()
    findings = sorted((row.kind, row.group, row.origin_message_id, row.attempt) for row in found.findings.collect())
    figures = summarise(found.ledger, found.now, found.since)
    found.close()
    assert findings == sorted(wrong)
    outcomes = {(row.group, row.origin_message_id, row.attempt): row for row in rows}
    faults: set[Attempt] = {(row[1], row[2], row[3]) for row in wrong}
    told = {attempt for attempt, row in outcomes.items() if row.notes == ["EXPIRED"]}
    assert told == (sent ^ back) - faults
    assert {attempt for attempt in told if outcomes[attempt].outcome == "expired"} == (sent - back) - faults
    assert {outcomes[attempt].outcome for attempt in (back - sent) - faults} == {"unexplained"}
    assert figures["expired"] == len((sent - back) - faults) > 0
    assert figures["attempts"] == len(sent) == sum(figures[name] for name in ("moved", "dead", "expired", "lost"))
    assert figures["lost"] == 2


@pytest.mark.long
def test_a_ledger_says_what_was_deleted_between_two_runs(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late, missed = sorted({one.attempt for one in taken.of("DELAY.0s")})[:2]
    early = taken.of("DELAY.1s")[0].attempt

    def of(kinds: tuple[str, ...], *wanted: Attempt) -> list[Copied]:
        return [one for one in taken.records if one.topic.startswith(kinds) and one.attempt in wanted]

    tables = taken.of("GROUPS")
    prefix = write(lived.bootstrap_servers, Copy(taken.partitions, [*tables, *of(("DELAY.", "RETRY."), early)]))
    settings = settings_for(lived.bootstrap_servers, prefix)
    lane = settings.names.delay(0)

    def run() -> tuple[list[str], dict[Attempt, list[str]]]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "reconsume"):
            found = reconcile(
                spark,
                lived.bootstrap_servers,
                topic_prefix=prefix,
                ledger=str(tmp_path),
                extents=partial(read_extents, Cluster(settings)),
            )
        rows = found.ledger.collect()
        found.close()
        assert [row.findings for row in rows if row.findings] == []
        said = [one.getMessage() for one in caplog.records if "lost records since" in one.getMessage()]
        return said, {(row.group, row.origin_message_id, row.attempt): row.notes for row in rows}

    assert run() == ([], {early: []})
    # It was deleted after it had been read: nothing is missed there.
    delete(lived.bootstrap_servers, {(settings.names.delay(1_000), 0): 1})
    add(lived.bootstrap_servers, prefix, of(("DELAY.",), missed))
    delete(lived.bootstrap_servers, {(lane, 0): 1})
    add(lived.bootstrap_servers, prefix, of(("DELAY.",), late))
    add(lived.bootstrap_servers, prefix, of(("DLQ.",), missed, late))
    (said,), notes = run()
    assert notes == {missed: ["EXPIRED"], late: []}
    assert said.startswith(f"1 partitions, such as {lane}-0, lost records")
    assert "at least as often as half the retention" in said


def test_a_delivered_record_that_was_parked_is_not_lost_in_the_next_run_of_a_ledger(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    """The next run reads the last minute again, and the row of the attempt names its retry only."""
    one = with_dead_letters(bootstrap_servers, 0)
    names, group = one.settings.names, one.settings.names.prefix + "scheduler"
    told = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "orders/0/1", "RECONSUME_TIME": "1", "DELAY": "1"}
    of_attempt = headers(REAL_TOPIC=f"%RETRY%{GROUP}", **told)
    lane, parked = names.delay(1_000), names.parked(GROUP)
    for topic in (parked, names.retry(GROUP)):
        one.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    for topic in (lane, parked, names.retry(GROUP)):
        one.produce(topic, b"v", headers=of_attempt, partition=0)
    found_by_run = []
    for _ in range(2):
        found = reconcile(
            spark,
            bootstrap_servers,
            topic_prefix=names.prefix,
            ledger=str(tmp_path),
            committed={group: {(lane, 0): 1, (parked, 0): 1}},
            tolerances=Tolerances(late=dt.timedelta(hours=2)),
        )
        found_by_run.append(([row.kind for row in found.findings.collect()], found.ledger.count()))
        found.close()
    assert found_by_run[1] == ([], 0)
    assert found_by_run[0][1] == 1


@pytest.mark.long
def test_a_stream_whose_next_dead_letters_are_gone_says_so_and_goes_on_if_told(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 4)
    topic = one.settings.names.dead_letter(GROUP)

    def run(**options: str) -> None:
        with explained("the stream stopped"):
            query = replay_stream(
                spark,
                bootstrap_servers,
                str(tmp_path),
                "nightly",
                topic_prefix=one.settings.topic_prefix,
                settle_seconds=0.1,
                options=options,
            )
            assert query.awaitTermination(400)

    run()
    before = replayed(one)
    assert sum(before.values()) == 4
    for number in (4, 5):
        one.produce(topic, b"v", headers=dead_letter_headers(number), partition=0)
    end = one.admin.end_offsets([(topic, 0)])[topic, 0]
    delete(bootstrap_servers, {(topic, 0): end - 1})
    with pytest.raises(TopicNotReady, match=r"records were deleted.*failOnDataLoss=false"):
        run()
    # The same in a batch, which retention overtakes while it reads.
    from_zero = {"startingOffsets": f'{{"{topic}": {{"0": 0, "1": 0}}}}'}
    with pytest.raises(TopicNotReady, match=r"records were deleted.*run it again"):
        plan_replay(
            spark,
            bootstrap_servers,
            str(tmp_path / "plan"),
            groups=[GROUP],
            topic_prefix=one.settings.topic_prefix,
            options=from_zero,
        )
    assert replayed(one) == before
    run(failOnDataLoss="false")
    assert replayed(one) - before == Counter({"flights/0/5": 1})


def test_a_group_that_nobody_has_seen(spark: SparkSession, bootstrap_servers: str, tmp_path: Path) -> None:
    one = with_dead_letters(bootstrap_servers, 0)
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), groups=[GROUP], topic_prefix=one.settings.topic_prefix)
    assert (plan.counts, plan.to_send) == ({}, 0)  # it has a topic, and nothing on it
    retries = read_retries(spark, bootstrap_servers, ["never-seen"], topic_prefix=one.settings.topic_prefix)
    with pytest.raises(TopicNotReady, match="a topic does not exist"), explained("reading retries"):
        retries.count()


def test_extents_are_those_of_the_time_that_is_looked_at(bootstrap_servers: str) -> None:
    one = with_dead_letters(bootstrap_servers, 0)
    topic = one.settings.names.dead_letter(GROUP)
    for number in range(4):
        one.produce(topic, b"v", headers=dead_letter_headers(number), partition=0)
    delete(bootstrap_servers, {(topic, 0): 1})
    times = [record.timestamp for record in one.read(topic)]
    found = [read_extents(one.cluster, moment)[topic, 0] for moment in (0, times[0], times[-1] + 1)]
    assert found == [Extent(1, 4), Extent(1, 4), Extent(0, 4)]
    delete(bootstrap_servers, {(topic, 0): 4})
    assert read_extents(one.cluster, times[-1] + 1)[topic, 0] == Extent(4, 4)
    assert read_extents(one.cluster, 0)[topic, 1] == Extent(0, 0)


NAMES = TopicNames("p.")
ROWS = (
    "`group` STRING, outcome STRING, damage STRING, dead BOOLEAN, sent_offset BIGINT, target_topic STRING, "
    "target_offset BIGINT, due TIMESTAMP, appended TIMESTAMP, asked TIMESTAMP, delivered TIMESTAMP, "
    "findings ARRAY<STRING>, notes ARRAY<STRING>"
)
PAIRS = "arrived_topic STRING, arrived_partition INT, arrived_offset BIGINT, arrived_appended TIMESTAMP"
LOST: dict[str, Any] = {
    "group": "g",
    "outcome": "lost",
    "dead": False,
    "sent_offset": 1,
    "findings": ["LOST"],
    "notes": [],
    "due": "2026-11-20 08:00:00",
    "appended": "2026-11-20 07:59:50",
    "target_offset": 5,
}
FIRST_DELIVERY: dict[str, Any] = {
    "arrived_topic": NAMES.retry("g"),
    "arrived_partition": 0,
    "arrived_offset": 7,
    "arrived_appended": "2026-11-21 08:00:00",
}
BEFORE, AFTER = "2026-11-20 08:00:01", "2026-11-21 08:00:01"


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        pytest.param({"delivered": BEFORE}, "expired", id="its delivery may have been deleted"),
        pytest.param({"delivered": BEFORE, "sent_offset": None}, "expired", id="its send-back is gone too"),
        pytest.param({"delivered": AFTER}, "lost", id="parked after the first delivery that is left"),
        pytest.param(
            {"delivered": BEFORE, "target_topic": NAMES.quarantine},
            "lost",
            id="released from the quarantine to nowhere",
        ),
    ],
)
def test_a_parked_record_is_not_lost_if_its_delivery_may_have_been_deleted(
    spark: SparkSession, row: dict[str, Any], outcome: str
) -> None:
    """The send-back was due at 8:00 and parked; the first deliveries of the retry topic are gone."""
    rows = local_rows(spark, [LOST | {"target_topic": NAMES.parked("g")} | row], ROWS)
    pairs = local_rows(spark, [FIRST_DELIVERY], PAIRS)
    extents = {(NAMES.retry("g"), 0): Extent(7, 9), (NAMES.dead_letter("g"), 0): Extent(3, 3)}
    found = DeletedRecords(NAMES, 1 << 41, lambda: extents, from_beginning=True, in_window=False, gaps=False)
    (judged,) = found.with_expired(rows, pairs, F.col("outcome") == "lost").collect()
    assert judged.outcome == outcome
    assert (judged.findings, judged.notes) == (([], ["EXPIRED"]) if outcome == "expired" else (["LOST"], []))
