"""Checks every few seconds whether Kafka answers and has what the API needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames

logger = SafeLogger(__name__)

_EVERY_SECONDS: Final = 5.0
_WINDOW_MS: Final = 30_000.0


class KafkaWatch:
    """Asks Kafka in a background thread.

    Args:
        base: librdkafka settings that every client uses.
        names: the installation's topics.
        clock: returns milliseconds.
    """

    def __init__(self, base: Mapping[str, Any], names: TopicNames, clock: Clock = monotonic_ms) -> None:
        self._stop = threading.Event()
        self._admin = KafkaAdmin(base, "reconsume-sidecar-watch", stop=self._stop)
        self._needed = (names.send_back, names.delay(0))
        self._clock = clock
        self._answered_ms: float | None = None
        self._missing: list[str] = []
        self._error = "not asked yet"
        self._thread = threading.Thread(target=self._run, name="reconsume-kafka-watch", daemon=True)

    def start(self) -> None:
        """Start to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; a request in flight ends by itself."""
        self._stop.set()

    def checks(self) -> dict[str, str | None]:
        """Return the problems with Kafka, None for a passed check."""
        since = None if self._answered_ms is None else self._clock() - self._answered_ms
        away = since is None or since > _WINDOW_MS
        missing = f"missing: {', '.join(self._missing)}; create them: reconsume topics apply" if self._missing else None
        return {"kafka": f"no answer for {_WINDOW_MS / 1000:.0f} s: {self._error}" if away else None, "topics": missing}

    def ask_once(self) -> None:
        """Ask once."""
        try:
            found = self._admin.partitions(self._needed)
        except ReconsumeError as error:
            self._error = str(error)
            return
        except Exception as error:
            # Without an answer the process becomes unready; the next one makes it ready again.
            logger.exception("asking Kafka failed, trying again")
            self._error = repr(error)
            return
        self._answered_ms = self._clock()
        self._missing = [topic for topic in self._needed if topic not in found]

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask_once()
            self._stop.wait(_EVERY_SECONDS)
