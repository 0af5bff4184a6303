"""What ends `reconcile --follow`, and what it waits out."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.cli.spark import reconcile
from reconsume.delay_levels.errors import IllegalSetting, KafkaLoginFailed, KafkaNotReachable, TopicNotReady
from reconsume.spark_connectors.failures import SparkFailed
from reconsume.spark_connectors.reconcile import LedgerTaken


def follow(monkeypatch: pytest.MonkeyPatch, *errors: Exception | None) -> int:
    """Follow until the last of these runs, each with its error; return how many there were."""
    ended, left = threading.Event(), list(errors)

    @contextmanager
    def reconciled(*_arguments: Any) -> Iterator[Any]:
        error = left.pop(0)
        if not left:
            ended.set()
        if error is not None:
            raise error
        yield SimpleNamespace(now=dt.datetime.now(dt.UTC))

    monkeypatch.setattr(reconcile, "stop_at_signals", lambda: ended)
    monkeypatch.setattr(reconcile, "reconciled", reconciled)
    monkeypatch.setattr(reconcile, "found_in", lambda _found: ({"findings": {}}, []))
    nothing: Any = SimpleNamespace(follow="5m")
    assert reconcile._follow(nothing, nothing, nothing, dt.timedelta(0), 0.0, as_json=True)
    return len(errors) - len(left)


@pytest.mark.parametrize(
    "error", [KafkaNotReachable("no broker"), TopicNotReady("a topic"), LedgerTaken("another\nrun")]
)
def test_a_passing_error_of_a_later_run_is_a_warning(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert follow(monkeypatch, None, error, None) == 3
    [record] = caplog.records
    message = record.getMessage()
    assert "the next one is in 5m" in message
    assert message.endswith(str(error).replace("\n", " "))


@pytest.mark.parametrize("first", [KafkaNotReachable("no broker"), TopicNotReady("a topic")])
def test_an_error_of_the_first_run_ends_it(first: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(first)):
        follow(monkeypatch, first, None)


@pytest.mark.parametrize("error", [KafkaLoginFailed("a login"), IllegalSetting("an option"), SparkFailed("Java")])
def test_an_error_that_does_not_pass_ends_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        follow(monkeypatch, None, error, None)
