"""Reconcile calls each fault by its name, and finds nothing else."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import reconcile
from tests.spark.copies import Copy, write
from tests.spark.faults import FAULTS, Wrong, broken
from tests.spark.lived import Lived

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


def test_in_a_copy_without_a_fault_nothing_is_found(spark: SparkSession, lived: Lived, taken: Copy) -> None:
    """Though transactions that were aborted, with a record that nobody sent back, stand between its records."""
    assert found_in(spark, lived, Copy(taken.partitions, list(taken.records))) == []
