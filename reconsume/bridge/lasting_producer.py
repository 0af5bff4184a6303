"""A producer that is replaced when it can do nothing any more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Producer

from reconsume.bridge.clients import close_producer, make_producer
from reconsume.bridge.connections import Connections
from reconsume.delay_levels.errors import KafkaNotReachable

__all__ = ["LastingProducer"]

logger = logging.getLogger(__name__)

_LAST_REPORTS_SECONDS: Final = 1.0


class LastingProducer:
    """Any thread may produce; one thread serves, and replaces the producer.

    A producer is of no use any more after a fatal error, or when librdkafka has left it alone (see `Connections`). What
    it has not delivered then gets an error, though the brokers may have stored it: whoever writes it again makes a
    second copy of that.

    Args:
        settings: librdkafka's, for a producer without transactions.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._told: Callable[[KafkaError], object] | None = self._settings.get("error_cb")
        self._fatal: str | None = None
        self._lock = threading.Lock()
        self._connections, self._producer = self._made()

    def __len__(self) -> int:
        """Records that are not acknowledged."""
        return len(self._producer)

    def produce(self, *args: Any, **kwargs: Any) -> None:
        """As `confluent_kafka.Producer.produce` does."""
        with self._lock:
            self._producer.produce(*args, **kwargs)

    def serve(self, seconds: float) -> None:
        """Call what waits for reports of deliveries, for so long; by one thread only."""
        self._producer.poll(seconds)
        try:
            self._connections.check()
        except KafkaNotReachable as error:
            self._replace(str(error))
        if self._fatal is not None:
            self._replace(self._fatal)

    def flush(self, seconds: float) -> int:
        """Wait until all are acknowledged; gives how many are not."""
        return self._producer.flush(seconds)

    def close(self) -> None:
        """Give up what is not acknowledged; when nobody produces or serves any more."""
        _give_up(self._producer)
        close_producer(self._producer)

    def _made(self) -> tuple[Connections, Producer]:
        connections = Connections(self._settings | {"error_cb": self._failed})
        return connections, make_producer(connections.settings)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = f"{error.name()}: {error.str()}"
        if self._told is not None:
            self._told(error)

    def _replace(self, why: str) -> None:
        logger.error("writing goes on with a new producer, %d records are tried again: %s", len(self._producer), why)
        with self._lock:
            old, self._fatal = self._producer, None
            self._connections, self._producer = self._made()
        # By a thread that nobody waits for: letting go of a broken client may take long. It is not closed, because
        # somebody may be in its `flush`.
        threading.Thread(target=_give_up, args=(old,), name="reconsume-broken-producer", daemon=True).start()


def _give_up(producer: Producer) -> None:
    """Whoever waits for a record is told that it was given up."""
    producer.purge()
    try:
        producer.flush(_LAST_REPORTS_SECONDS)
    except SystemError as error:
        # confluent-kafka 2.16 raises it where a fatal error comes with the reports.
        logger.debug("giving up a producer with a fatal error: %s", error)
