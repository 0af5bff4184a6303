"""Tells the program of a drop-in consumer that librdkafka no longer connects to any broker."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from reconsume.bridge.librdkafka.connections import Connections
from reconsume.delay_levels.errors import KafkaNotReachable


class LostBrokers(Connections):
    """Raises an error in the program's poll when the consumer reaches no broker and never will (see `Connections`).

    Only the program can replace its consumer. Without the error its polls would return nothing, without a sign.

    Guarantees: a `poll` or `consume` with a timeout raises at its end, again with each report until the consumer
    closes. `consume` drops the messages of that call (confluent-kafka, `Consumer_consume`); nothing of this consumer
    can be committed any more, so its successor reads them. Known gap: without a timeout they do not return, because
    confluent-kafka (2.16) raises what a callback raised when the time is up.
    Test: tests/unit/consumers/drop_in/test_lost_brokers.py.

    Args:
        conf: the consumer's settings; their `stats_cb` is called too.
        closing: set when the consumer closes.
    """

    def __init__(self, conf: Mapping[str, Any], closing: threading.Event) -> None:
        super().__init__(conf)
        self._closing = closing

    def hear(self, statistics: Mapping[str, Any]) -> None:
        """Process a report of librdkafka.

        Raises:
            KafkaNotReachable: this consumer reaches no broker, and never will.
        """
        super().hear(statistics)
        if self._closing.is_set():
            return
        try:
            self.check()
        except KafkaNotReachable as error:
            raise KafkaNotReachable(
                f"this consumer reaches no broker any more ({error}); close it and make another one"
            ) from error
