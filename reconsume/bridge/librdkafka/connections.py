"""Whether a client still looks for brokers, from librdkafka's statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable

_EVERY_MS: Final = 10_000
_NEVER: Final = (0, "0")
_IDLE_US: Final = 5_000_000
"""A client without a connection requests one every second."""
_PATIENCE_MS: Final = 5_000.0
"""Longer than one interval of statistics: unused brokers are used again within milliseconds, or never."""
_REAL: Final = ("configured", "learned")
"""Sources of brokers that librdkafka was given or has learned; a logical broker is another name for one of them."""


class Connections:
    """Watches the statistics of one client, and notes since when it no longer looks for brokers.

    A broker that has just started may answer that the cluster has topics but no brokers. librdkafka (2.10 to 2.16) then
    removes all its brokers, also those of `bootstrap.servers` (its issue 5301). A broker still in use remains but is
    never connected to again, and because it remains, the bootstrap servers are not used either. From then on the client
    connects to no broker: polls return nothing, requests get no answer, and no error is reported. Only a new client
    helps: workers (also for the producer of `AtLeastOnceWriter`), `PushConsumer`, the readers of GROUPS and CANCEL,
    `RecordReader` and `LastingProducer` make one, the drop-in consumer asks its program to. Tests:
        tests/unit/bridge/librdkafka/test_connections.py, tests/integration/scheduler/test_lost_membership.py.

    Remove when: librdkafka issue 5301 is closed and the oldest supported version has the fix.

    Args:
        conf: the client's settings; their `stats_cb` is called too.
        clock: monotonic milliseconds.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = monotonic_ms) -> None:
        self._conf = conf
        self._every = conf.get("statistics.interval.ms", 0)
        self._told: Callable[[str], object] | None = None if self._every in _NEVER else conf.get("stats_cb")
        self._clock = clock
        self._since: float | None = None
        self._alone: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings with statistics, which arrive while the client is polled."""
        # Illegal values are left to librdkafka, which reports them.
        return {
            **self._conf,
            "statistics.interval.ms": _EVERY_MS if self._every in _NEVER else self._every,
            "stats_cb": self._heard,
        }

    def check(self) -> None:
        """Check the connections; call it periodically.

        Raises:
            KafkaNotReachable: this client reaches no broker, and never will.
        """
        if self._alone is not None:
            raise KafkaNotReachable(self._alone)

    def hear(self, statistics: Mapping[str, Any]) -> None:
        """Process a report of librdkafka."""
        if any(map(_is_used, (statistics.get("brokers") or {}).values())):
            self._since = self._alone = None
            return
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now - self._since >= _PATIENCE_MS:
            self._alone = f"librdkafka has looked for no broker for {(now - self._since) / 1000:.0f} s"

    def _heard(self, statistics: str) -> None:
        if self._told is not None:
            self._told(statistics)
        self.hear(json.loads(statistics))


def _is_used(broker: Mapping[str, Any]) -> bool:
    """Return whether a broker is connected, or was recently asked for a connection."""
    idle = broker.get("state") == "INIT" and broker.get("stateage", 0) >= _IDLE_US
    return broker.get("source") in _REAL and not idle
