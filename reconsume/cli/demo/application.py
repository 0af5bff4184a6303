"""The demo's application: a consumer group that processes flights, and fails as real ones do."""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as KafkaMessage

from reconsume.cli.demo.rows import Row
from reconsume.cli.demo.tally import PROCESSED_ORIGIN
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

__all__ = ["CannotProcess", "FlightsApplication"]

_FAILS_SOMETIMES: Final = 20
"""One message in so many fails once or twice, then succeeds."""


class CannotProcess(Exception):
    """The application's own error."""


class FlightsApplication:
    """Processing a row means to publish it to another topic; the listener waits for that to be acknowledged.

    Args:
        bootstrap_servers: the cluster.
        group: the consumer group.
        topic: where the rows are.
        processed: where processed rows go.
        cannot_process: which rows always fail.
        max_reconsume_times: of the consumer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        *,
        topic: str,
        processed: str,
        cannot_process: Callable[[Row], bool],
        max_reconsume_times: int,
    ) -> None:
        self._cannot_process = cannot_process
        self._processed = processed
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 2, "enable.idempotence": True})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.consumer = PushConsumer(
            group,
            bootstrap_servers=bootstrap_servers,
            conf={"auto.offset.reset": "earliest"},
            max_reconsume_times=max_reconsume_times,
            consume_thread_nums=64,
        )
        self.consumer.subscribe(topic)
        self.consumer.register_message_listener(self._on_messages)

    def start(self) -> None:
        """Begin to consume."""
        self._thread.start()
        self.consumer.start()

    def close(self) -> None:
        """Stop in order."""
        self.consumer.shutdown()
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _on_messages(
        self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        for message in messages:
            row = json.loads(message.body or b"{}")
            if self._cannot_process(row):
                raise CannotProcess("this row can never be processed")
            luck = zlib.crc32(str(message.origin).encode())
            if luck % _FAILS_SOMETIMES == 0 and message.reconsume_times <= luck // _FAILS_SOMETIMES % 2:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            self._publish(message)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def _publish(self, message: Message) -> None:
        acknowledged = threading.Event()
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: KafkaMessage) -> None:
            if error is not None:
                failed.append(error)
            acknowledged.set()

        headers: list[tuple[str, Any]] = [(PROCESSED_ORIGIN, str(message.origin).encode())]
        self._producer.produce(
            self._processed, value=message.body, key=message.key, headers=headers, on_delivery=on_delivery
        )
        acknowledged.wait()
        if failed:
            raise CannotProcess(failed[0].str())

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.05)
