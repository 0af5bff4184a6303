"""What a run looks at before it sends anything."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.replay.execution import _check_break, _check_retries
from reconsume.spark_connectors.replay.plan import ReplayPlan

DAY_MS = 86_400_000


def session(**settings: str) -> Any:
    said = {name.replace("__", "."): value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default=None: said.get(name, default)))


@pytest.mark.parametrize(
    "settings",
    [
        {"spark__master": "local[*]"},
        {"spark__master": "local[2]", "spark__speculation": "false"},
        {"spark__master": "k8s://x", "spark__task__maxFailures": "1"},
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
        ({"spark__task__maxFailures": "1", "spark__speculation": "true"}, "spark.speculation is on"),
    ],
)
def test_a_spark_that_may_run_a_task_twice_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(IllegalSetting, match=message.replace(".", r"\.")):
        _check_retries(session(**settings))


def test_a_run_that_was_interrupted_long_ago_does_not_go_on() -> None:
    plan = ReplayPlan("folder", "friday", 0, "true", "retry", "reconsume.", 2)
    now = time.time_ns() // 1_000_000
    _check_break(plan, None)
    _check_break(plan, now - 5 * DAY_MS)
    with pytest.raises(IllegalSetting, match="plan friday was interrupted over 6 days ago"):
        _check_break(plan, now - 7 * DAY_MS)
