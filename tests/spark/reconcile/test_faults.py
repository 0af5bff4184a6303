"""Reconcile calls each fault by its name, and finds nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.spark_connectors import reconcile
from tests.spark.histories.copies import Copy, add, write
from tests.spark.histories.faults import FAULTS, Wrong, broken
from tests.spark.histories.lived import Lived

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]
NAMES = [*(fault.__name__ for fault in FAULTS), "waits_past_its_time"]


def found_in(spark: SparkSession, lived: Lived, copy: Copy) -> list[Wrong]:
    """The findings of a copy, with aborted and empty transactions between its records."""
    copy.aborts = [topic for topic in copy.partitions if copy.of(topic) and topic != "GROUPS"]
    assert len(copy.aborts) >= 6
    prefix = write(lived.bootstrap_servers, copy)
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix)
    rows = found.findings.collect()
    found.close()
    assert all(row.commands for row in rows)
    # A record without a name goes by the place where it stands.
    return [
        (row.kind, row.group, None if row.origin_message_id.startswith(prefix) else row.origin_message_id, row.attempt)
        for row in rows
    ]


@pytest.fixture(scope="module")
def faulty(spark: SparkSession, lived: Lived, taken: Copy) -> tuple[list[Wrong], dict[str, Wrong]]:
    """What was found in one copy that has every fault, and what must be found."""
    copy, wrong = broken(taken, *lived.groups)
    return found_in(spark, lived, copy), wrong


@pytest.mark.parametrize("fault", NAMES)
def test_each_fault_is_called_by_its_name(faulty: tuple[list[Wrong], dict[str, Wrong]], fault: str) -> None:
    found, wrong = faulty
    assert found.count(wrong[fault]) == 1


def test_nothing_else_is_found(faulty: tuple[list[Wrong], dict[str, Wrong]]) -> None:
    found, wrong = faulty
    assert sorted(map(str, found)) == sorted(map(str, wrong.values()))
    assert len(set(wrong.values())) == len(NAMES) == 19  # none hides behind another


def test_what_waits_for_the_end_of_a_pause_is_not_lost_and_not_late_when_it_comes(
    spark: SparkSession, lived: Lived, taken: Copy, tmp_path: Path
) -> None:
    once = [one for one in taken.of("RETRY.") if one.attempt[0] == lived.groups[0] and int(one.value or b"0") % 4 == 1]
    delivered, waiting = once[:2]
    topic = delivered.topic.replace("RETRY.", "PARKED.")
    copy = Copy({**taken.partitions, topic: 1}, list(taken.records))
    copy.swap(delivered, delivered.changed(topic=topic), delivered.changed(later_ms=120_000))
    copy.swap(waiting, waiting.changed(topic=topic))
    prefix, outcomes = write(lived.bootstrap_servers, copy), []
    for _ in range(2):
        found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, ledger=str(tmp_path / "ledger"))
        assert [(row.kind, row.attempt) for row in found.findings.collect()] == []
        rows = found.ledger.where((F.col("origin_message_id") == waiting.attempt[1]) & (F.col("attempt") == 1))
        outcomes += [row.outcome for row in rows.where(F.col("group") == lived.groups[0]).collect()]
        found.close()
        add(lived.bootstrap_servers, prefix, [waiting])
    assert outcomes == ["waiting", "moved"]
