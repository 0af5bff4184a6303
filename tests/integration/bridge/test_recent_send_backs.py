"""What was sent back in the last minutes is read from the delay topics and the inbox, committed or not at all."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack, recent_send_backs, windows
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def here(bootstrap_servers: str) -> Installation:
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    return one


def copy(group: str, offset: int, times: int, **more: str) -> list[Header]:
    headers = {
        "REAL_TOPIC": f"%RETRY%{group}",
        "ORIGIN_MESSAGE_ID": f"flights/0/{offset}",
        "RECONSUME_TIME": str(times),
        "DELAY": "3",
        "BORN_TIMESTAMP": "7",
    }
    return [(name, value.encode()) for name, value in (headers | more).items()]


def found(here: Installation, since_ms: int = 0, groups: list[str] | None = None) -> dict[Attempt, RecentSendBack]:
    return dict(all_found(here, since_ms, groups))


def all_found(
    here: Installation, since_ms: int = 0, groups: list[str] | None = None, most_bytes: int = 1_000_000
) -> list[tuple[Attempt, RecentSendBack]]:
    settings, now_ms = here.settings, int(time.time() * 1000)
    base, names, stop = settings.client_settings(), settings.names, threading.Event()
    return list(recent_send_backs(base, names, since_ms, groups, stop, now_ms=now_ms, most_bytes=most_bytes))


def test_copies_in_lanes_dead_letters_and_the_inbox_are_told_apart(here: Installation) -> None:
    names = here.settings.names
    here.produce(names.delay(2_000), b"", headers=copy("g", 1, 2))
    here.produce(names.delay(0), b"", headers=copy("g", 2, 3, REAL_TOPIC="%DLQ%g", DELAY="0"))
    here.produce(names.send_back, b"", headers=copy("g", 3, 0))
    here.produce(names.delay(1_000), b"", headers=copy("g", 4, 1, REPLAY_ID="friday", REPLAY_TIMES="1"))
    here.produce(names.delay(1_000), b"", headers=copy("other", 5, 1))
    here.produce(names.delay(1_000), b"", headers=copy("orders", 6, 1, REAL_TOPIC="orders"))
    here.produce(names.delay(1_000), b"", headers=copy("g", 7, 1, RECONSUME_TIME="often"))
    [lane] = here.read(names.delay(2_000))
    [dead] = here.read(names.delay(0))
    replayed = here.read(names.delay(1_000))[0]
    none = (None, None)
    assert found(here, groups=["g"]) == {
        Attempt("g", "flights/0/1", 2, none): RecentSendBack(False, 3, lane.timestamp + 2_000, 7, in_inbox=False),
        Attempt("g", "flights/0/2", 3, none): RecentSendBack(True, None, dead.timestamp, 7, in_inbox=False),
        Attempt("g", "flights/0/3", 1, none): RecentSendBack(False, None, None, 7, in_inbox=True),
        Attempt("g", "flights/0/4", 1, (b"friday", b"1")): RecentSendBack(
            False, 3, replayed.timestamp + 1_000, 7, in_inbox=False
        ),
    }
    assert Attempt("other", "flights/0/5", 1, none) in found(here)
    assert found(here, since_ms=int(time.time() * 1000) + 60_000) == {}


def test_what_a_transaction_has_aborted_was_not_written_and_one_that_is_open_is_waited_for(here: Installation) -> None:
    topic = here.settings.names.delay(1_000)
    producer = Producer(here.settings.client_settings() | {"transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"", headers=cast("Any", copy("g", 1, 1)))
    producer.flush(PATIENCE)
    here.produce(topic, b"", headers=copy("g", 2, 1))
    answers: list[dict[Attempt, RecentSendBack]] = []
    reading = threading.Thread(target=lambda: answers.append(found(here)))
    reading.start()
    wait_until(reading.is_alive, "it reads")
    producer.abort_transaction(30)
    reading.join(PATIENCE)
    assert [attempt.origin_message_id for attempt in answers[0]] == ["flights/0/2"]


def test_the_newest_come_first_and_reading_ends_at_its_limit(
    here: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    topic = here.settings.names.delay(9_000)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "CreateTime"})
    producer, now_ms = here.producer(), int(time.time() * 1000)
    for offset, seconds in enumerate((300, 60, 5)):
        headers = cast("Any", copy("g", offset, 1))
        producer.produce(topic, b"x" * 10_000, headers=headers, timestamp=now_ms - seconds * 1000)
    producer.flush()
    assert [attempt.origin_message_id[-1] for attempt, _ in all_found(here)] == ["2", "1", "0"]
    assert "recent send-backs" not in caplog.text
    assert [attempt.origin_message_id[-1] for attempt, _ in all_found(here, most_bytes=25_000)] == ["2", "1"]
    assert "only 0 MiB of recent send-backs are read" in caplog.text


def test_windows_reach_from_now_to_the_beginning() -> None:
    assert list(windows(90_000, 100_000)) == [99_000, 97_000, 93_000, 90_000]
    assert list(windows(5, 5)) == []
    assert len(list(windows(0, 2_000_000_000_000))) < 40
