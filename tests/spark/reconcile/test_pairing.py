"""What one fault has torn apart is brought together, also where all messages are alike."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.spark_connectors.reconcile.records.attempts import (
    candidates,
    gather_attempts,
    pair_attempts,
    pair_copies,
)
from reconsume.spark_connectors.session import local_rows

SCHEMA = (
    "`group` STRING, origin_message_id STRING, replay_times INT, attempt INT, sent_stamp BIGINT, arrived_stamp BIGINT, "
    "sent_damage STRING, arrived_damage STRING, sent_appended TIMESTAMP, arrived_appended TIMESTAMP, "
    "sent_by_producer BOOLEAN, arrived_by_producer BOOLEAN, sent_topic STRING, sent_partition INT, sent_offset BIGINT, "
    "arrived_topic STRING, arrived_partition INT, arrived_offset BIGINT"
)
ALIKE = 300
MANY = 1_000
PLACED = {"stamp": 7, "appended": "2026-11-21 08:00:00", "by_producer": False, "topic": "t", "partition": 0}


def row(number: int, **more: Any) -> dict[str, Any]:
    named = {"group": "g", "origin_message_id": f"flights/0/{number}", "replay_times": 0, "attempt": 1}
    sides = {f"{side}_{name}": value for side in ("sent", "arrived") for name, value in PLACED.items()}
    return named | sides | {"sent_offset": number, "arrived_offset": number} | more


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


def test_many_that_are_alike_are_paired_in_the_order_of_time_without_squares(spark: SparkSession) -> None:
    def at(second: int, side: str) -> dict[str, Any]:
        return {f"{side}_appended": f"2026-11-21 08:{second // 60:02}:{second % 60:02}"}

    missing = [row(number, sent_damage="d", **at(number, "sent")) for number in range(MANY)]
    # The first came before anything was sent back, the second before the second send-back.
    surplus = [row(-number, **at(max(0, number - 1), "arrived")) for number in range(1, MANY)]
    surplus.append(row(-MANY, arrived_appended="2026-11-21 07:00:00"))
    found = candidates(*(local_rows(spark, rows, SCHEMA) for rows in (missing, surplus))).select(
        F.col("m.sent_offset").alias("sent"), (-F.col("s.arrived_offset")).alias("arrived")
    )
    assert {(one.sent, one.arrived) for one in found.collect()} == {(number - 1, number) for number in range(1, MANY)}


def test_copies_of_one_attempt_are_paired_in_their_order(spark: SparkSession) -> None:
    copies, late = 40, 3_600

    def record(number: int, side: str, second: int) -> dict[str, Any]:
        moment = f"2026-11-21 {8 + second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}"
        told = {"group": "g", "origin_message_id": "flights/0/1", "replay_times": 0, "attempt": 1, "offset": number}
        told |= {"side": side, "kafka_topic": side, "partition": 0, "appended": moment, "due": moment, "kind": "retry"}
        return told | {"astray": False, "by_producer": False, "stamp": 7}

    rows = [record(number, "sent", number) for number in range(copies)]
    # One delivery too many, of before anything was due.
    rows += [record(number, "arrived", late + number) for number in range(1, copies)]
    rows += [record(number, "arrived", late + number) for number in (copies, copies + 1)]
    rows[copies]["astray"] = True
    rows.append(record(0, "sent", 0) | {"origin_message_id": "flights/0/2"})
    schema = (
        "`group` STRING, origin_message_id STRING, replay_times INT, attempt INT, side STRING, kind STRING, "
        "kafka_topic STRING, partition INT, offset BIGINT, appended TIMESTAMP, due TIMESTAMP, level INT, "
        "delay_ms BIGINT, dead BOOLEAN, astray BOOLEAN, replayed BOOLEAN, damage STRING, stamp BIGINT, "
        "deliveries INT, cause STRING, released STRING, by_producer BOOLEAN"
    )
    attempts = gather_attempts(local_rows(spark, rows, schema).repartition(2, "origin_message_id"))
    pairs = pair_attempts(attempts.where("NOT many")).unionByName(pair_copies(attempts.where("many")))
    found = {(one.origin_message_id[-1], one.copy): one for one in pairs.collect()}
    assert {(at, one.sent_offset, one.arrived_offset, one.copies_sent) for at, one in found.items()} == {
        (("2", 0), 0, None, 1),
        *((("1", number), number, number + 2, copies) for number in range(copies)),
        (("1", copies), None, 1, copies),
    }
