"""How demo and runs of faults process a message: they publish it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from reconsume.bridge.kafka.client_settings import producer_settings
from reconsume.bridge.kafka.errors import is_given_up, translate, translated
from reconsume.bridge.kafka.lasting_producer import LastingProducer
from reconsume.bridge.process.polled_records import ClientError, PolledRecord

PROCESSED_ORIGIN: Final = "origin"
"""Header of published messages: the place of the first copy, `<topic>/<partition>/<offset>`."""
_SERVE_SECONDS: Final = 0.05


class Processing:
    """Publishes messages. Many threads share it; each waits for its own message.

    Args:
        bootstrap_servers: `host:port` of Kafka, comma-separated.
        topic: the topic for processed messages.
        may_repeat: whether publishing twice is harmless. Then a message is repeated after an unknown outcome, and
            without
            idempotence: librdkafka would spin while failing brokers do not answer.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, may_repeat: bool = False) -> None:
        self._topic, self._doing = topic, f"publishing to {topic}"
        self._may_repeat = may_repeat
        settings = producer_settings({"bootstrap.servers": bootstrap_servers}, "processing")
        self._producer = LastingProducer(settings | {"linger.ms": 2, "enable.idempotence": not may_repeat})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="processing", daemon=True)
        self._thread.start()

    def process(self, body: bytes | None, origin: str, key: bytes | None = None) -> None:
        """Publish a message with this origin (`<topic>/<partition>/<offset>`).

        Raises:
            KafkaRefused: Kafka refuses it; KafkaNotReachable: it may succeed later.
        """
        while (error := self._publish(body, origin, key)) is not None:
            if not self._may_repeat or not is_given_up(error):
                raise translate(error, self._doing)

    def _publish(self, body: bytes | None, origin: str, key: bytes | None) -> ClientError | None:
        answer: Future[ClientError | None] = Future()

        def on_delivery(error: ClientError | None, _message: PolledRecord) -> None:
            answer.set_result(error)

        headers: list[tuple[str, str | bytes | None]] = [(PROCESSED_ORIGIN, origin.encode())]
        while True:
            try:
                with translated(self._doing):
                    self._producer.produce(self._topic, value=body, key=key, headers=headers, on_delivery=on_delivery)
            except BufferError:
                self._stop.wait(_SERVE_SECONDS)
            else:
                return answer.result()

    def close(self) -> None:
        """Close the producer; call this when no message is being processed."""
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.serve(_SERVE_SECONDS)
