"""The allowed topics of a worker are published, whatever goes wrong at first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.targets import allowed_topics
from reconsume.bridge.scheduler.targets.allowed_topics import publish_allowed_topics
from reconsume.delay_levels.errors import KafkaNotReachable


@pytest.mark.parametrize("error", [OSError("Too many open files"), KafkaNotReachable("away")])
def test_after_an_error_they_are_written_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Exception | None] = iter([error, None])

    def write(_cluster: object) -> None:
        if (answer := next(answers)) is not None:
            raise answer

    monkeypatch.setattr(allowed_topics, "write_allowed_topics", write)
    monkeypatch.setattr(allowed_topics, "_AGAIN_SECONDS", 0.0)
    follower = SimpleNamespace(
        wait_until_loaded=lambda _stop: True, groups=SimpleNamespace(allowed_real_topics=("flights",))
    )
    settings = Settings(bootstrap_servers="127.0.0.1:9", allowed_real_topics=["orders"])
    publish_allowed_topics(settings, cast("Any", follower), threading.Event())
    assert next(answers, "written") == "written"
