"""The messages of a run, and the required end of each."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.errors import translated
from reconsume.bridge.kafka.lasting_producer import LastingProducer
from reconsume.bridge.process.polled_records import ClientError, PolledRecord
from reconsume.cli.judging.judge import DEAD
from reconsume.delay_levels.errors import ReconsumeError

logger = logging.getLogger(__name__)

ORIGIN: Final = "chaos.orders"
PROCESSED: Final = "chaos.processed"
GROUP: Final = "chaos"
PARTITIONS: Final = 6
SESSION: Final = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 600}
"""Setting of every member of the group."""
_FAILURES: Final = (0,) * 70 + (1,) * 15 + (2,) * 8 + (3,) * 2 + (DEAD,) * 5
_SPREAD: Final = 37
"""Coprime to 100, so that neighbours differ and every 100 messages have the same mix."""
_TURN_SECONDS: Final = 0.02
_NOT_STORED: Final = 10_000
"""The maximum of messages that wait for a broker."""


def body_of(number: int) -> bytes:
    """Return `<number> <failures>`: 30 of 100 messages fail, 5 of them until they are dead letters."""
    return b"%d %d" % (number, _FAILURES[number * _SPREAD % len(_FAILURES)])


def failures_in(body: bytes | None) -> int:
    """Return how often the message fails before it succeeds."""
    return int((body or b"0 0").split()[1])


class Load(NamedTuple):
    """A message to produce; partition -1 means any."""

    topic: str
    body: bytes
    partition: int
    headers: Mapping[str, bytes] = {}


def _ordinary(number: int) -> Load:
    return Load(ORIGIN, body_of(number), number % PARTITIONS)


def produce(
    conf: Mapping[str, Any],
    rate: float,
    stop: threading.Event,
    limit: Callable[[], bool],
    load: Callable[[int], Load] = _ordinary,
) -> int:
    """Produce at a steady rate until told to stop, then wait for the acknowledgements; return the number.

    If an acknowledgement is lost, the message may be stored twice, and counts as two.

    Args:
        conf: librdkafka settings.
        rate: messages per second.
        stop: ends the production.
        limit: returns whether to pause for a moment.
        load: returns the message with a number.
    """
    producer = LastingProducer(producer_settings(conf, "chaos-load"))
    open_ones, again = dict[int, Load](), deque[int]()

    def send(number: int) -> None:
        def done(error: ClientError | None, _message: PolledRecord) -> None:
            # Called for a replaced producer too, in its own thread.
            if error is None:
                open_ones.pop(number, None)
            else:
                again.append(number)

        topic, body, partition, headers = open_ones[number]
        try:
            with translated(f"producing to {topic}"):
                producer.produce(topic, body, partition=partition, headers=dict(headers), on_delivery=done)
        except (BufferError, ReconsumeError) as error:
            # Also if the client has just heard that it may not use the topic, while a right is revoked.
            logger.warning("%s; message %d waits", error, number)
            again.append(number)

    number, allowed, last = 0, 0.0, time.monotonic()
    while not stop.is_set() or open_ones:
        producer.serve(_TURN_SECONDS)
        for _ in range(len(again)):
            send(again.popleft())
        now = time.monotonic()
        elapsed, last = now - last, now
        if stop.is_set() or limit() or len(open_ones) > _NOT_STORED:
            continue
        allowed += elapsed * rate
        while number < allowed:
            open_ones[number] = load(number)
            send(number)
            number += 1
    producer.close()
    return number
