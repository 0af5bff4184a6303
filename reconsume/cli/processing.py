"""What it means to process a message in a demo and in a run of faults: to publish it."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from reconsume.bridge.kafka import producer_settings, translate

__all__ = ["PROCESSED_ORIGIN", "Processing"]

PROCESSED_ORIGIN: Final = "origin"
"""Header of what was published: where the message first stood, `<topic>/<partition>/<offset>`."""
_SERVE_SECONDS: Final = 0.05


class Processing:
    """Done when Kafka has acknowledged it. Threads may share it, and many do: each waits for its own message.

    Args:
        bootstrap_servers: host:port of Kafka, several with commas.
        topic: where processed messages go.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        settings = producer_settings({"bootstrap.servers": bootstrap_servers}, "processing")
        self._producer = Producer(settings | {"linger.ms": 2})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="processing", daemon=True)
        self._thread.start()

    def process(self, body: bytes | None, origin: str, key: bytes | None = None) -> None:
        """Publish a message that first stood there (`<topic>/<partition>/<offset>`).

        Raises:
            KafkaRefused: Kafka does not take it; KafkaNotReachable: it may later.
        """
        done = threading.Event()
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)
            done.set()

        headers: list[tuple[str, str | bytes | None]] = [(PROCESSED_ORIGIN, origin.encode())]
        self._producer.produce(self._topic, value=body, key=key, headers=headers, on_delivery=on_delivery)
        done.wait()
        if failed:
            raise translate(failed[0], f"publishing to {self._topic}")

    def close(self) -> None:
        """To be called when nothing is being processed any more."""
        self._stop.set()
        self._thread.join()
        self._producer.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_SERVE_SECONDS)
