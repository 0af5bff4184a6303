"""What a run looks at before it sends anything."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.failures import SparkFailed
from reconsume.spark_connectors.replay.chunks import check_rate, check_run
from reconsume.spark_connectors.replay.execution import (
    _add_event,
    _check_break,
    _check_retries,
    longest_break_days,
    run_replay,
)
from reconsume.spark_connectors.replay.plan import PLAN_OPTIONS, ReplayPlan, open_plan
from reconsume.spark_connectors.session import shuffle_partitions

DAY_MS = 86_400_000


def session(**settings: str | None) -> Any:
    said = {name.replace("__", "."): value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: said.get(name, default)))


@pytest.mark.parametrize(
    "settings",
    [
        {"spark__master": "local[*]"},
        {"spark__master": "local[2]", "spark__speculation": "false"},
        {"spark__master": "local[*, 1]"},
        {"spark__master": "k8s://x", "spark__task__maxFailures": "1"},
        {"spark__master": "yarn", "spark__task__maxFailures": " 1", "spark__speculation": "False"},
    ],
)
def test_a_spark_that_runs_no_task_twice_may_replay(settings: dict[str, str]) -> None:
    _check_retries(session(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spark__master": "spark://x"}, "spark.task.maxFailures is 4"),
        ({}, "spark.task.maxFailures is 4"),
        ({"spark__master": "local[2]", "spark__task__maxFailures": "3"}, "spark.task.maxFailures is 3"),
        ({"spark__master": "local[*, 4]", "spark__task__maxFailures": "1"}, r"local\[\*, 4\] repeats a failed task"),
        ({"spark__task__maxFailures": "1", "spark__speculation": "true"}, "spark.speculation is on"),
        ({"spark__task__maxFailures": "1", "spark__speculation": " TRUE "}, "spark.speculation is on"),
    ],
)
def test_a_spark_that_may_run_a_task_twice_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalSetting, match=message):
        _check_retries(session(**settings))


@pytest.mark.parametrize(("said", "partitions"), [("8", 8), ("auto", 200), (None, 200)])
def test_the_partitions_of_a_shuffle_are_a_number_also_where_databricks_chooses(
    said: str | None, partitions: int
) -> None:
    assert shuffle_partitions(session(spark__sql__shuffle__partitions=said)) == partitions


def test_a_plan_goes_on_only_as_it_was_made() -> None:
    plan = ReplayPlan("folder", "friday", 0, "true", "retry", "reconsume.", 2, groups=["departures"])
    options = {**PLAN_OPTIONS, "topic_prefix": "--topic-prefix"}
    for fine in ({}, {"groups": ["departures"], "max_replays": 2}, {"where": "true", "topic_prefix": "reconsume."}):
        plan.check_same(fine, options)
    others: dict[str, Any] = {"where": "false", "target": "origin", "groups": ["arrivals"], "topics": ["orders-dlt"]}
    others |= {"group": "arrivals", "max_replays": 3, "topic_prefix": "test."}
    for name, value in others.items():
        with pytest.raises(IllegalSetting, match=f"{options[name]} .* the plan in folder was made with"):
            plan.check_same({name: value}, options)
    assert others.keys() == options.keys()


@pytest.mark.parametrize("rate", [0, -1, math.inf, math.nan, 1e-300])
def test_a_rate_that_no_run_has_is_refused(rate: float) -> None:
    with pytest.raises(IllegalSetting, match=f"rate {rate}: use a number of records per second"):
        check_rate(rate)


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_a_time_to_settle_that_no_run_has_is_refused(seconds: float) -> None:
    with pytest.raises(IllegalSetting, match=f"settle_seconds {seconds}: use a number of seconds, 0 or more"):
        check_run(None, seconds, ())


@pytest.mark.parametrize("partitions", [8, "89", [-1], [True], [8.0], [1 << 40], {8}])
def test_bulk_partitions_that_no_topic_has_are_refused(partitions: Any) -> None:
    check_run(None, 0, [8, 9])
    with pytest.raises(IllegalSetting, match="bulk_partitions must be"):
        check_run(None, 0, partitions)


def test_a_run_that_was_interrupted_long_ago_does_not_go_on() -> None:
    plan = ReplayPlan("folder", "friday", 0, "true", "retry", "reconsume.", 2)
    now = time.time_ns() // 1_000_000
    _check_break(plan, now - 5 * DAY_MS, longest_break_days(7))
    with pytest.raises(IllegalSetting, match="plan friday was interrupted over 6 days ago"):
        _check_break(plan, now - 7 * DAY_MS, longest_break_days(7))
    with pytest.raises(IllegalSetting, match=r"plan friday was interrupted over 0\.857 days ago"):
        _check_break(plan, now - 23 * DAY_MS // 24, longest_break_days(1))


class Gone:
    """A session whose Spark has ended."""

    @property
    def read(self) -> object:
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize(
    "step",
    [
        lambda spark, _: open_plan(spark, "folder"),
        lambda spark, plan: run_replay(spark, "localhost:9092", plan),
        lambda spark, plan: _add_event(spark, plan, "run", "started"),
    ],
    ids=["opening the plan", "reading its events", "adding an event"],
)
def test_a_spark_that_has_ended_is_an_error_of_ours_at_each_step(step: Callable[[Any, ReplayPlan], object]) -> None:
    spark: Any = Gone()
    spark.conf, spark.createDataFrame = session(spark__master="local[1]").conf, None
    with pytest.raises(SparkFailed, match="Spark's process ended"):
        step(spark, ReplayPlan("folder", "friday", 0, "true", "retry", "reconsume.", 2))
