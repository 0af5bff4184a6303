"""The allowed topics of a worker are published, whatever goes wrong at first, and again in a new GROUPS topic."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.targets import allowed_topics
from reconsume.bridge.scheduler.targets.allowed_topics import publish_allowed_topics
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, TopicNotReady
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY

Allowed = tuple[str, ...] | None
OWN = ("orders",)
OF_ANOTHER = ("flights",)


class Publishing(threading.Event):
    """A worker's thread and the GROUPS topic, in which `then` stands after each of its waits; then it is stopped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: Allowed, *then: Allowed) -> None:
        super().__init__()
        self._then = list(then)
        self.errors: list[Exception] = []
        self.tries = self.written = 0
        self.clusters: set[object] = set()
        self.groups = SimpleNamespace(allowed_real_topics=first, unreadable=set())
        monkeypatch.setattr(allowed_topics, "write_allowed_topics", self._write)

    def wait_until_loaded(self, _stop: threading.Event) -> bool:
        return True

    def wait(self, _seconds: float | None = None) -> bool:
        if self._then:
            self.groups.allowed_real_topics = self._then.pop(0)
        else:
            self.set()
        return self.is_set()

    def _write(self, cluster: object) -> None:
        self.tries += 1
        self.clusters.add(cluster)
        if self.errors:
            raise self.errors.pop()
        self.written += 1

    def run(self) -> None:
        settings = Settings(bootstrap_servers="127.0.0.1:9", allowed_real_topics=[*OWN])
        publish_allowed_topics(settings, cast("Any", self), self)


@pytest.mark.parametrize(
    "error", [OSError("Too many open files"), KafkaNotReachable("away"), TopicNotReady("no GROUPS")], ids=str
)
def test_after_an_error_they_are_written_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Publishing(monkeypatch, OF_ANOTHER, OF_ANOTHER, OF_ANOTHER, OWN)
    worker.errors = [error, error]
    worker.run()
    assert (worker.tries, worker.written) == (3, 1)
    assert len(worker.clusters) == 1, "each has clients of its own, and the topic may be missing for ever"
    assert caplog.text.count("allowed_real_topics not published yet") == (2 if isinstance(error, OSError) else 1)


def test_an_unreadable_value_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until compaction the earlier value, which is this worker's, seems to be there."""
    worker = Publishing(monkeypatch, OWN)
    worker.groups.unreadable = {ALLOWED_TOPICS_KEY}
    worker.run()
    assert worker.written == 1


def test_without_the_right_to_write_them_nothing_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Publishing(monkeypatch, None, None, None)
    worker.errors = [KafkaRefused("no right")]
    worker.run()
    assert (worker.tries, worker.written) == (1, 0)
    assert "senders cannot refuse topics that are not allowed: no right" in caplog.text


def test_they_are_written_again_when_the_groups_topic_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """From then on senders would take messages for every topic, which go to the quarantine when they are due."""
    worker = Publishing(monkeypatch, OWN, OWN, None, OWN, OWN)
    worker.run()
    assert worker.written == 1


def test_a_worker_that_has_published_leaves_the_setting_of_another_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Publishing(monkeypatch, OF_ANOTHER, OWN, OF_ANOTHER, OF_ANOTHER)
    worker.run()
    assert worker.written == 1
