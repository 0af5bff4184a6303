"""What one fault has torn apart is brought together, also where all messages are alike."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors.reconcile.records.attempts import candidates
from reconsume.spark_connectors.session import local_rows

SCHEMA = (
    "`group` STRING, origin_message_id STRING, replay_times INT, attempt INT, sent_stamp BIGINT, arrived_stamp BIGINT, "
    "sent_damage STRING, arrived_damage STRING"
)
ALIKE = 300


def row(number: int, **more: Any) -> dict[str, Any]:
    named = {"group": "g", "origin_message_id": f"flights/0/{number}", "replay_times": 0, "attempt": 1}
    return named | {"sent_stamp": 7, "arrived_stamp": 7} | more


def faults(spark: SparkSession, missing: list[dict[str, Any]], surplus: list[dict[str, Any]]) -> set[str]:
    found = candidates(*(local_rows(spark, rows, SCHEMA) for rows in (missing, surplus)))
    return {one.fault for one in found.select("fault").collect()}


def test_messages_that_are_all_alike_do_not_make_a_row_for_each_two(spark: SparkSession) -> None:
    missing = [row(number) for number in range(ALIKE)]
    surplus = [row(number, attempt=2) for number in range(ALIKE)]
    surplus += [row(-number, arrived_damage="RECONSUME_TIME") for number in range(1, 3)]
    found = candidates(*(local_rows(spark, rows, SCHEMA) for rows in (missing, surplus)))
    counts = {one.fault: one["count"] for one in found.groupBy("fault").count().collect()}
    assert counts == {"WRONG_COUNT": ALIKE, "DAMAGED": 2 * ALIKE}


@pytest.mark.parametrize(
    ("missing", "surplus", "fault"),
    [
        ({}, {"attempt": 2}, {"WRONG_COUNT"}),
        ({}, {"group": "other"}, {"WRONG_GROUP"}),
        ({}, {"group": "other", "attempt": 2}, set()),
        ({}, {"attempt": 2, "arrived_stamp": 8}, set()),
        ({}, {"origin_message_id": "x", "arrived_damage": "d"}, {"DAMAGED"}),
        ({"sent_damage": "d"}, {"origin_message_id": "x"}, {"DAMAGED"}),
        ({"sent_damage": "d", "group": None}, {"origin_message_id": "x"}, {"DAMAGED"}),
        ({"sent_damage": "d"}, {"origin_message_id": "x", "group": "other"}, set()),
        ({}, {"origin_message_id": "x"}, set()),
        ({}, {}, set()),
    ],
)
def test_two_belong_together_by_a_fault(
    spark: SparkSession, missing: dict[str, Any], surplus: dict[str, Any], fault: set[str]
) -> None:
    assert faults(spark, [row(1, **missing)], [row(1, **surplus)]) == fault
