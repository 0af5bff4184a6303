"""Replays through a real scheduler into a real listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from reconsume.delay_levels.wire.properties import Header
from reconsume.spark_connectors.replay import ReplayPlan, plan_replay, replay_report, run_replay
from tests.integration.installation import SUCCESS, Deliveries, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(2)]
HEADERS: list[Header] = [("trace", b"1"), ("TAGS", b"late"), ("trace", b"\xff"), ("none", None)]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    """A scheduler that may write to topics whose names begin with the prefix and `-allowed`."""
    settings = settings_for(bootstrap_servers)
    allowed = f"{settings.topic_prefix[:-1]}-allowed.*"
    one = Installation(settings.model_copy(update={"allowed_real_topics": [allowed]}))
    one.make_topics()
    one.write_groups()
    with scheduler(one.settings):
        yield one


class Broken:
    """A listener's decision that fails until somebody fixes it."""

    def __init__(self) -> None:
        self.mended = False

    def __call__(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if self.mended:
            return SUCCESS
        number = int(messages[0].body or b"0")
        raise ValueError("no dep_time" if number % 2 else "timeout")


def outcomes(spark: SparkSession, here: Installation, plan: ReplayPlan) -> dict[str, int]:
    report = replay_report(spark, here.settings.bootstrap_servers, plan)
    return {row["outcome"]: row["count"] for row in report.groupBy("outcome").count().collect()}


def plan_for(spark: SparkSession, here: Installation, folder: Path, group: str, **arguments: Any) -> ReplayPlan:
    return plan_replay(
        spark,
        here.settings.bootstrap_servers,
        str(folder),
        groups=[group],
        topic_prefix=here.settings.topic_prefix,
        **arguments,
    )


def test_chosen_dead_letters_come_to_the_listener_once_with_topic_and_headers(
    spark: SparkSession, here: Installation, tmp_path: Path
) -> None:
    group, topic = here.name("g/ü 1"), here.topic("flights")
    for number in range(20):
        here.produce(topic, str(number).encode(), key=f"k{number}".encode(), headers=HEADERS)
    broken = Broken()
    listener = Deliveries(broken)
    with here.consumer(group, topic, listener, max_reconsume_times=0):
        wait_until(lambda: len(here.dead_letters(group)) == 20, "all are dead letters")
        broken.mended = True
        first = {message.body: message for message in listener.messages}
        plan = plan_for(spark, here, tmp_path / "plan", group, where="cause = 'no dep_time' AND tags = 'late'")
        assert plan.counts == {"send": 10}
        assert run_replay(spark, here.settings.bootstrap_servers, plan).sent == 10
        wait_until(lambda: len(listener.messages) >= 30, "what was replayed is delivered")
        assert run_replay(spark, here.settings.bootstrap_servers, plan).sent == 0
    again = listener.messages[20:]
    assert Counter(message.body for message in again) == {str(number).encode(): 1 for number in range(1, 20, 2)}
    for message in again:
        assert (message.topic, message.key, message.msg_id) == (
            topic,
            first[message.body].key,
            first[message.body].msg_id,
        )
        assert message.reconsume_times == 0
        own = [header for header in message.headers if header[0] not in ("REPLAY_ID", "REPLAY_TIMES")]
        assert own == HEADERS
        assert message.properties["REPLAY_ID"] == plan.plan_id
        assert message.born_timestamp == first[message.body].kafka.timestamp
    assert outcomes(spark, here, plan) == {"delivered": 10}
    assert len(here.retries(group)) == 10


@pytest.mark.long
def test_a_replay_of_what_keeps_failing_is_refused_at_the_limit(
    spark: SparkSession, here: Installation, tmp_path: Path
) -> None:
    group, topic = here.name("keeps-failing"), here.topic("keeps-failing")
    here.produce(topic, b"1")
    with here.consumer(group, topic, Deliveries(Broken()), max_reconsume_times=0):
        wait_until(lambda: len(here.dead_letters(group)) == 1, "it is dead")
        plan = plan_for(spark, here, tmp_path / "1", group)
        assert plan.counts == {"send": 1}
        run_replay(spark, here.settings.bootstrap_servers, plan)
        wait_until(lambda: len(here.dead_letters(group)) == 2, "it is dead again")
        assert outcomes(spark, here, plan) == {"dead_again": 1}
        assert plan_for(spark, here, tmp_path / "2", group).counts == {"send": 1, "superseded": 1}
        refused = plan_for(spark, here, tmp_path / "3", group, max_replays=1)
        assert refused.counts == {"capped": 1, "superseded": 1}
        assert run_replay(spark, here.settings.bootstrap_servers, refused).sent == 0
    assert [letter["REPLAY_TIMES"] for letter in here.dead_letters(group)] == [None, "1"]


def test_a_replay_to_the_origin_topic_is_for_all_groups_and_needs_leave(
    spark: SparkSession, here: Installation, tmp_path: Path
) -> None:
    group = here.name("to-origin")
    allowed, other = f"{here.settings.topic_prefix[:-1]}-allowed", here.topic("not-allowed")
    here.admin.create(allowed, 2, -1, {})
    for topic in (allowed, other):
        here.produce(topic, b"1", key=b"k", headers=HEADERS)
    consumer = here.consumer(group, allowed, Deliveries(Broken()), max_reconsume_times=0).subscribe(other)
    with consumer:
        wait_until(lambda: len(here.dead_letters(group)) == 2, "both are dead letters")
    plan = plan_for(spark, here, tmp_path, group, target="origin")
    run_replay(spark, here.settings.bootstrap_servers, plan)
    wait_until(lambda: len(here.read(allowed)) == 2, "one is on its origin topic again")
    wait_until(lambda: len(here.read(here.settings.names.quarantine)) == 1, "the other is in the quarantine")
    assert outcomes(spark, here, plan) == {"delivered": 1, "quarantined": 1}
    copy = next(record for record in here.read(allowed) if record["REPLAY_ID"])
    assert (copy.key, copy.value, copy.headers[:4]) == (b"k", b"1", HEADERS)
    assert copy["RECONSUME_TIME"] is None
