"""Old transactions: which the doctor reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.settings import Settings
from reconsume.operations.doctor import installation
from reconsume.operations.doctor.installation import check_transactions
from reconsume.operations.doctor.report import Report


@pytest.mark.parametrize(("again", "told"), [({}, []), ({0: 9}, []), ({0: 4}, ["since offset 4"])])
def test_what_has_ended_a_moment_later_was_not_old(
    monkeypatch: pytest.MonkeyPatch, again: dict[int, int], told: list[str]
) -> None:
    """By the clock of a machine that is ahead of the brokers', every transaction is old."""
    names, topic = Settings().names, "reconsume.DELAY.10s"
    answers = [{(topic, partition): offset for partition, offset in one.items()} for one in ({0: 4}, again)]
    admin = SimpleNamespace(
        topics=lambda: {topic: 1},
        partitions=lambda _topics: {topic: 1},
        leaderless=lambda _topics: set(),
        open_transactions=lambda _partitions, _before_ms: answers.pop(0),
    )
    cluster: Any = SimpleNamespace(admin=admin, names=names, clock=lambda: 1e12, settings=Settings())
    monkeypatch.setattr(installation, "_AGAIN_SECONDS", 0)
    check_transactions(cluster, Groups(), report := Report())
    found = [one.what for one in report.findings]
    assert [one in found[0] for one in told] == [True] * len(found)
    assert len(found) == len(told)
