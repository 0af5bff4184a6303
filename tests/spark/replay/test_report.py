"""A plan's report finds each message, whatever became of its target and whatever options the plan was made with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from reconsume.spark_connectors.replay import ReplayPlan, plan_replay, replay_report, run_replay
from tests.integration.installation import Installation
from tests.spark.histories.dead_letters import GROUP, dead_letter_headers, with_dead_letters
from tests.spark.histories.history import headers

pytestmark = pytest.mark.kafka


def outcomes(spark: SparkSession, one: Installation, plan: ReplayPlan, **options: str) -> dict[str, str]:
    report = replay_report(spark, one.settings.bootstrap_servers, plan, options=options)
    return {row.message_id: row.outcome for row in report.collect()}


def test_messages_whose_origin_topics_cannot_be_read_are_sent(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 0)
    names = one.settings.names
    for number, origin in enumerate((f"{names.prefix[:-1]}-deleted", "il/leg al", names.delay(0))):
        one.produce(names.dead_letter(GROUP), b"v", headers=dead_letter_headers(number, RETRY_TOPIC=origin))
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), target="origin", topic_prefix=names.prefix)
    assert run_replay(spark, bootstrap_servers, plan).sent == 3
    assert outcomes(spark, one, plan) == {f"flights/0/{number}": "sent" for number in range(3)}


def test_options_that_end_the_dead_letters_of_a_plan_do_not_end_its_report(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path
) -> None:
    one = with_dead_letters(bootstrap_servers, 1)
    until = str(time.time_ns() // 1_000_000)
    retry = one.settings.names.retry(GROUP)
    one.admin.create(retry, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    plan = plan_replay(spark, bootstrap_servers, str(tmp_path), topic_prefix=one.settings.topic_prefix)
    # As a scheduler does with the copy.
    copy = {"ORIGIN_MESSAGE_ID": "flights/0/0", "REPLAY_ID": plan.plan_id, "REPLAY_TIMES": "1"}
    one.produce(retry, b"v", headers=headers(RECONSUME_TIME="0", **copy))
    assert outcomes(spark, one, plan, endingTimestamp=until) == {"flights/0/0": "delivered"}
    # It had been in the quarantine, which keeps its records, and was released.
    one.produce(one.settings.names.quarantine, b"v", headers=headers(REAL_TOPIC=f"%RETRY%{GROUP}", **copy))
    assert outcomes(spark, one, plan) == {"flights/0/0": "delivered"}
