"""The session of a replay under spark-submit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.spark_connectors.replay import submit

ZONE = "spark.sql.session.timeZone"


@pytest.mark.parametrize(("given", "zone"), [({}, "UTC"), ({ZONE: "Europe/Paris"}, "Europe/Paris")])
def test_times_without_an_offset_are_in_utc_unless_the_user_sets_a_zone(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], zone: str
) -> None:
    seen = []

    def note(spark: Any, _arguments: object) -> dict[str, Any]:
        seen.append(dict(spark.conf.getAll))
        return {}

    spark = SimpleNamespace(conf=SimpleNamespace(getAll=given, set=given.__setitem__), stop=lambda: None)
    builder = SimpleNamespace(appName=lambda _: SimpleNamespace(getOrCreate=lambda: spark))
    monkeypatch.setattr(submit, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(submit, "submit", note)
    submit.main()
    assert seen == [{ZONE: zone}]
