"""Known records on topics of a prefix of their own: what the producer wrote is the truth that readers must tell."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any, Final, cast

from confluent_kafka import Producer

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE

__all__ = ["GROUP", "History", "Written", "headers", "write_history"]

GROUP: Final = "zürich/a.b_5F %"
"""A group that needs every part of the name code."""
BORN_MS: Final = 1_700_000_000_123


@dataclass(frozen=True, slots=True)
class Written:
    """One record as it was produced.

    Attributes:
        expected: columns that its headers must give.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    expected: dict[str, Any]


@dataclass
class History:
    """Where the records are, and which they are."""

    bootstrap_servers: str
    installation: Installation
    written: list[Written] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return self.installation.settings.topic_prefix

    def of(self, *topics: str) -> list[Written]:
        return [one for one in self.written if one.topic in topics]

    def write(
        self,
        to: str,
        headers: list[Header],
        /,
        *,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        **expected: Any,
    ) -> None:
        """Produce a record and remember where the brokers put it."""
        producer = Producer(self.installation.settings.client_settings())

        def stored(error: Any, message: Any) -> None:
            assert error is None, error
            place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
            self.written.append(Written(*place, key, value, headers, expected))

        producer.produce(to, value, key, headers=cast("Any", headers), on_delivery=stored)
        assert producer.flush(PATIENCE) == 0
        producer.close()

    def abort(self, topic: str) -> None:
        """A record that was never committed, with its transaction marker."""
        settings = self.installation.settings.client_settings() | {"transactional.id": uuid.uuid4().hex}
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"aborted", b"aborted", headers=cast("Any", headers(RECONSUME_TIME="1")))
        assert producer.flush(PATIENCE) == 0
        producer.abort_transaction(30)
        producer.close()


def headers(*others: tuple[str, bytes | None], **ours: str) -> list[Header]:
    """Properties as headers, then the user's."""
    return [(name, text.encode()) for name, text in ours.items()] + list(others)


def write_history(bootstrap_servers: str) -> History:
    """A retry, a dead letter, waiting records, user headers of every sort, damage, and aborted transactions."""
    installation = Installation(settings_for(bootstrap_servers))
    maker = TopicMaker(installation.admin, installation.settings.names, installation.settings.topics)
    names = installation.settings.names
    maker.make(maker.delay_topic(10_000))
    maker.make(maker.delay_topic(0))
    maker.make(maker.quarantine_topic())
    maker.make(maker.retry_topic(GROUP, Groups()))
    maker.make(maker.dead_letter_topic(GROUP))
    maker.make(maker.dead_letter_topic("empty"))
    history = History(bootstrap_servers, installation)
    origin = installation.topic("flights", 2)
    _write_waiting(history, names.delay(10_000))
    history.abort(names.delay(10_000))
    _write_damaged(history, names.delay(10_000))
    _write_retries(history, names.retry(GROUP))
    _write_dead_letters(history, names.dead_letter(GROUP))
    history.write(
        names.quarantine,
        headers(QUARANTINE_REASON="header REAL_TOPIC is missing", QUARANTINE_ORIGIN="x.DELAY.10s/0/3"),
        kind="quarantine",
        topic=names.quarantine,
        group=None,
        cause="header REAL_TOPIC is missing",
    )
    history.write(
        origin,
        headers(RECONSUME_TIME="7", ORIGIN_MESSAGE_ID="old/0/1", DELAY="3", REAL_TOPIC="%RETRY%x", TAGS="late"),
        kind="message",
        topic=origin,
        group=None,
        target=None,
        origin_topic=origin,
        attempt=0,
        level=None,
        tags="late",
        malformed=[],
    )
    return history


def _write_waiting(history: History, topic: str) -> None:
    user: list[Header] = [("a", b"1"), ("a", b"2"), ("binary", b"\xff\xfe\x00"), ("nothing", None), ("", b"")]
    history.write(
        topic,
        [
            *user,
            *headers(
                *[("TAGS", b"late"), ("KEYS", b"UA1 UA2"), ("UNIQ_KEY", b"id-1")],
                RETRY_TOPIC="flights",
                ORIGIN_MESSAGE_ID="flights/1/42",
                RECONSUME_TIME="1",
                DELAY="3",
                REAL_TOPIC="%RETRY%" + GROUP,
                REAL_QID="0",
                BORN_TIMESTAMP=str(BORN_MS),
            ),
        ],
        kind="delay",
        topic=topic,
        group=GROUP,
        target="%RETRY%" + GROUP,
        origin_message_id="flights/1/42",
        origin_topic="flights",
        origin_partition=1,
        origin_offset=42,
        attempt=1,
        level=3,
        delay_ms=10_000,
        tags="late",
        keys="UA1 UA2",
        uniq_key="id-1",
        malformed=[],
        replay_times=0,
        replay_id=None,
    )
    # Of duplicates the last counts; a client's own id names no position.
    history.write(
        topic,
        [("RECONSUME_TIME", b"1"), *headers(RECONSUME_TIME="2", ORIGIN_MESSAGE_ID="my-id", RETRY_TOPIC="flights")],
        key=None,
        value=None,
        attempt=2,
        origin_message_id="my-id",
        origin_topic="flights",
        origin_partition=None,
        origin_offset=None,
        group=None,
        target=None,
        malformed=[],
    )


def _write_damaged(history: History, topic: str) -> None:
    history.write(
        topic,
        [
            *[("RECONSUME_TIME", b"\xff"), ("DELAY", b"three"), ("REAL_TOPIC", b"%RETRY%\xffx"), ("RETRY_TOPIC", None)],
            *[("ORIGIN_MESSAGE_ID", b"\xc3("), ("BORN_TIMESTAMP", b"-9223372036854775808"), ("REAL_QID", b"1\n")],
            *[("MAX_RECONSUME_TIMES", b"-1"), ("TIMER_DELIVER_MS", b"soon"), ("TAGS", b"\xff"), ("KEYS", None)],
        ],
        kind="delay",
        attempt=None,
        level=None,
        born=None,
        origin_topic=None,
        tags="�",
        keys=None,
        malformed=[
            *["BORN_TIMESTAMP", "DELAY", "MAX_RECONSUME_TIMES", "ORIGIN_MESSAGE_ID", "REAL_QID", "REAL_TOPIC"],
            *["RECONSUME_TIME", "RETRY_TOPIC", "TIMER_DELIVER_MS"],
        ],
    )
    history.write(topic, [], kind="delay", group=None, attempt=0, malformed=[], origin_message_id=None)


def _write_retries(history: History, topic: str) -> None:
    history.abort(topic)
    history.write(
        topic,
        headers(RETRY_TOPIC="flights", ORIGIN_MESSAGE_ID="flights/1/42", RECONSUME_TIME="1", DELAY="3"),
        kind="retry",
        topic="%RETRY%" + GROUP,
        group=GROUP,
        attempt=1,
        level=3,
        delay_ms=None,
        due=None,
        origin_topic="flights",
    )


def _write_dead_letters(history: History, topic: str) -> None:
    dead = {
        "__dlq.errors.topic": "flights",
        "__dlq.errors.delivery.count": "17",
        "__dlq.errors.message": "no dep_time",
        "__dlq.errors.exception.class": "builtins.ValueError",
        "__dlq.errors.stacktrace": "Traceback …",
        "REPLAY_ID": "plan-1",
        "REPLAY_TIMES": "2",
    }
    history.write(
        topic,
        headers(
            RETRY_TOPIC="flights",
            ORIGIN_MESSAGE_ID="flights/1/42",
            RECONSUME_TIME="17",
            DELAY="0",
            REAL_TOPIC="%DLQ%" + GROUP,
            **dead,
        ),
        kind="dead_letter",
        topic="%DLQ%" + GROUP,
        group=GROUP,
        attempt=17,
        level=0,
        cause="no dep_time",
        exception_class="builtins.ValueError",
        stacktrace="Traceback …",
        deliveries=17,
        replay_id="plan-1",
        replay_times=2,
    )
