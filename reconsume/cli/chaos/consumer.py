"""A consumer under test, as a program: `python -m reconsume.cli.chaos.consumer BOOTSTRAP_SERVERS`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from reconsume.cli.chaos.workload import (
    GROUP,
    MAX_RECONSUME_TIMES,
    ORIGIN,
    PROCESSED,
    PROCESSED_ORIGIN,
    failures_in,
)
from reconsume.cli.logs import configure_logs
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Message,
    PushConsumer,
    listener_call,
)

__all__ = ["consume"]

_SESSION_MS: Final = 6_000
_SERVE_SECONDS: Final = 0.05


class _Processing:
    """To process a message means to publish it; done when that is acknowledged."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "message.timeout.ms": 0}
        self._producer = Producer(settings | {"linger.ms": 2, "log_level": 2, "reconnect.backoff.max.ms": 1_000})
        threading.Thread(target=self._serve, daemon=True).start()

    def __call__(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            if message.reconsume_times < failures_in(message.body):
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            self._publish(message)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def _publish(self, message: Message) -> None:
        done = threading.Event()
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: KafkaMessage) -> None:
            if error is not None:
                failed.append(error)
            done.set()

        origin: list[tuple[str, str | bytes | None]] = [(PROCESSED_ORIGIN, str(message.origin).encode())]
        self._producer.produce(PROCESSED, value=message.body, headers=origin, on_delivery=on_delivery)
        done.wait()
        if failed:
            raise RuntimeError(failed[0].str())

    def _serve(self) -> None:
        while True:
            self._producer.poll(_SERVE_SECONDS)


def consume(bootstrap_servers: str) -> None:
    """Until SIGTERM."""
    consumer = PushConsumer(
        GROUP,
        bootstrap_servers=bootstrap_servers,
        conf={
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": _SESSION_MS // 10,
        },
        max_reconsume_times=MAX_RECONSUME_TIMES,
        exactly_once=True,
    )
    consumer.subscribe(ORIGIN)
    consumer.register_message_listener(_Processing(bootstrap_servers))
    consumer.run()


if __name__ == "__main__":
    configure_logs("INFO", "console")
    # The listener fails on purpose.
    logging.getLogger(listener_call.__name__).setLevel(logging.CRITICAL)
    consume(sys.argv[1])
