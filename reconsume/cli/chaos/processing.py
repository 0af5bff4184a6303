"""What it means to process a message in a run: to publish it."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from reconsume.bridge.kafka import producer_settings
from reconsume.cli.chaos.workload import PROCESSED, PROCESSED_ORIGIN

__all__ = ["Processing"]

_SERVE_SECONDS: Final = 0.05


class Processing:
    """Done when Kafka has acknowledged it. Threads may share it."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = producer_settings({"bootstrap.servers": bootstrap_servers}, "chaos-processing")
        self._producer = Producer(settings | {"linger.ms": 2})
        threading.Thread(target=self._serve, daemon=True).start()

    def process(self, body: bytes | None, origin: str) -> None:
        """Publish a message that first stood there (`<topic>/<partition>/<offset>`)."""
        done = threading.Event()
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error)
            done.set()

        headers: list[tuple[str, str | bytes | None]] = [(PROCESSED_ORIGIN, origin.encode())]
        self._producer.produce(PROCESSED, value=body, headers=headers, on_delivery=on_delivery)
        done.wait()
        if failed:
            raise RuntimeError(failed[0].str())

    def _serve(self) -> None:
        while True:
            self._producer.poll(_SERVE_SECONDS)
