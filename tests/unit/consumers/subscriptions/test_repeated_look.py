"""A repeated look: its first answer is waited for, later ones replace it, errors never do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from reconsume.consumers.subscriptions import repeated_look
from reconsume.consumers.subscriptions.repeated_look import RepeatedLook
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, TopicNotReady
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_look, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(repeated_look, "_AGAIN_SECONDS", 0.01)


def saying(*answers: str | Exception) -> Callable[[], str]:
    """The answers in turn, then the last one for ever."""
    left = list(answers)

    def look() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


def test_a_cluster_that_is_away_is_waited_for_and_new_answers_are_found() -> None:
    found = RepeatedLook(
        saying(
            KafkaNotReachable("away"), TopicNotReady("new"), "one", KafkaRefused("not now"), ValueError("ours"), "two"
        ),
        "x",
        threading.Event(),
    )
    found.start(threading.Event())
    try:
        assert found.latest in ("one", "two")
        wait_until(lambda: found.latest == "two", "the new answer")
    finally:
        found.close()


def test_a_first_question_that_is_refused_is_raised() -> None:
    found = RepeatedLook(saying(KafkaRefused("no right")), "x", threading.Event())
    with pytest.raises(KafkaRefused, match="no right"):
        found.start(threading.Event())
    found.close()


def test_what_was_known_holds_while_the_cluster_refuses(caplog: pytest.LogCaptureFixture) -> None:
    found = RepeatedLook(saying("one", KafkaRefused("no right")), "topics", threading.Event())
    found.start(threading.Event())
    wait_until(lambda: "topics: no right; using earlier values" in caplog.text, "the refusal")
    assert found.latest == "one"
    found.close()


def test_a_stop_ends_the_wait_for_the_first_answer() -> None:
    found, stop = RepeatedLook(saying(KafkaNotReachable("away")), "x", threading.Event()), threading.Event()
    stop.set()
    found.start(stop)
    assert found.latest is None
    found.close()


def test_its_end_does_not_wait_for_kafka(caplog: pytest.LogCaptureFixture) -> None:
    stop, asked, ended = threading.Event(), threading.Event(), threading.Event()

    def look() -> str:
        asked.set()
        assert stop.wait(PATIENCE)
        raise KafkaNotReachable("stopped")

    found = RepeatedLook(look, "x", stop)
    starting = threading.Thread(target=found.start, args=(ended,))
    starting.start()
    assert asked.wait(PATIENCE)
    found.close()
    ended.set()
    starting.join()
    assert caplog.text == ""
