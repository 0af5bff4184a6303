"""Deliveries in transactions that are still open: neither there, nor missing, nor a finding."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors import Tolerances, reconcile
from tests.spark.histories.copies import Copy, add, in_transaction, write
from tests.spark.histories.lived import Lived
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]
Outcomes = dict[tuple[str, str, int], str]


def judged(
    spark: SparkSession, lived: Lived, prefix: str, until: dt.datetime | None = None
) -> tuple[Outcomes, list[tuple[str, str]]]:
    """The outcome of each attempt, and kind and message of each finding; of all as it is at that moment."""
    # The deliveries of the transactions are of now, their send-backs an hour old.
    tolerances = Tolerances(late=dt.timedelta(hours=2))
    found = reconcile(spark, lived.bootstrap_servers, topic_prefix=prefix, until=until, tolerances=tolerances)
    rows = found.ledger.collect()
    findings = [(row.kind, row.origin_message_id) for row in found.findings.collect()]
    found.close()
    return {(row.group, row.origin_message_id, row.attempt): row.outcome for row in rows}, findings


def test_what_is_in_open_transactions_waits_until_they_end(spark: SparkSession, lived: Lived, taken: Copy) -> None:
    copy = Copy(taken.partitions, list(taken.records))
    retries = [copy.of("RETRY.", where=lambda one, name=name: one.attempt[0] == name) for name in lived.groups]  # type: ignore[misc]
    # Of each group one that will be in a transaction, and one that is committed behind it.
    (written, behind), (given_up, behind_that) = ((ones[3], ones[5]) for ones in retries)
    for one in (written, behind, given_up, behind_that):
        copy.records.remove(one)
    prefix = write(lived.bootstrap_servers, copy)
    stranger, other = (one.changed(ORIGIN_MESSAGE_ID=b"never/0/1") for one in (written, given_up))
    with (
        in_transaction(lived.bootstrap_servers, prefix, [written, stranger]) as first,
        in_transaction(lived.bootstrap_servers, prefix, [given_up, other]) as second,
    ):
        add(lived.bootstrap_servers, prefix, [behind, behind_that])
        outcomes, findings = judged(spark, lived, prefix)
        assert findings == []
        waiting = {attempt for attempt, outcome in outcomes.items() if outcome == "waiting"}
        assert waiting == {one.attempt for one in (written, behind, given_up, behind_that)}
        first.commit_transaction(30)
        second.abort_transaction(30)
    told = {("LOST", given_up.attempt[1]), ("ORPHAN", "never/0/1")}
    # What is missing is called lost when no transaction can be open any more that has it.
    later = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=90)
    wait_until(lambda: set(judged(spark, lived, prefix, later)[1]) == told, "both are told")
    outcomes, findings = judged(spark, lived, prefix, later)
    assert sorted(findings) == sorted(told)
    assert {outcomes[one.attempt] for one in (written, behind, behind_that)} == {"moved"}
    assert outcomes[given_up.attempt] == "lost"
    assert outcomes[lived.groups[0], "never/0/1", 1] == "unexplained"
