"""A plan that was made by another version, or changed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.replay import ReplayPlan, open_plan

FACTS: Final[dict[str, Any]] = {
    "plan_id": "friday",
    "created_ms": 1,
    "where": "true",
    "target": "retry",
    "topic_prefix": "reconsume.",
    "max_replays": 2,
    "since_ms": 0,
    "counts": {"send": 1},
    "groups": ["a"],
    "topics": None,
    "group": None,
}


def write(folder: Path, text: str) -> str:
    (folder / "plan").mkdir()
    (folder / "plan" / "part-0.txt").write_text(text)
    return str(folder)


def test_a_plan_is_read_though_an_editor_has_broken_its_lines(spark: SparkSession, tmp_path: Path) -> None:
    folder = write(tmp_path, json.dumps(FACTS, indent=1))
    assert open_plan(spark, folder) == ReplayPlan(folder=folder, **FACTS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "the plan must be a dict, got list"),
        ("\x00", "Expecting value"),
        (json.dumps({"plan_id": "x"}), "another version of reconsume made it"),
        (json.dumps(FACTS | {"since_ms": "soon"}), "since_ms must be an int, got str"),
        (json.dumps(FACTS | {"counts": {"send": "many"}}), "send must be an int, got str"),
        (json.dumps(FACTS | {"target": "elsewhere"}), "use retry or origin"),
    ],
)
def test_a_plan_that_is_damaged_is_said(spark: SparkSession, tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(IllegalSetting, match=rf"/plan cannot be read \(.*{why}.*make a new plan in another folder"):
        open_plan(spark, write(tmp_path, text))
