"""Whether a client looks for a broker, as librdkafka's statistics tell it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.delay_levels.errors import KafkaNotReachable

_EVERY_MS: Final = 10_000
_IDLE_US: Final = 5_000_000
"""A client that has no connection asks one of its brokers for one every second."""
_PATIENCE_MS: Final = 5_000.0
"""More than one statistics: brokers that are put away are taken up again within milliseconds, or never."""
_REAL: Final = ("configured", "learned")
"""Sources of brokers that librdkafka was given or has heard of; a logical one is but another name for one of them."""


class Connections:
    """Listens to the statistics of one client, and remembers since when it looks for no broker any more.

    A broker that has just started may answer that the cluster has topics but no brokers. librdkafka (2.10 to 2.16) then
    puts all its brokers away, also those of `bootstrap.servers` (its issue 5301). One that is still in use stays behind
    and is never connected to again, and because of it the bootstrap servers are not taken up. From then on the client
    connects to nobody: a consumer's polls give nothing, requests are never answered, and no error tells of it. What
    helps is another client: workers, a `PushConsumer`, the readers of GROUPS and CANCEL and `LastingProducer` begin
    afresh with one. Tests: tests/unit/bridge/librdkafka/test_connections.py, tests/integration/test_lost_membership.py.

    Remove when: librdkafka issue 5301 is closed and the oldest supported version has the fix.

    Args:
        conf: the client's settings; a `stats_cb` in it is told too.
        clock: milliseconds that only grow.
    """

    def __init__(self, conf: Mapping[str, Any], *, clock: Clock = monotonic_ms) -> None:
        self._told: Callable[[str], object] | None = conf.get("stats_cb")
        self._conf = conf
        self._clock = clock
        self._since: float | None = None
        self._alone: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The same settings with statistics, which come while the client is polled."""
        every = self._conf.get("statistics.interval.ms", 0)
        # Other texts are left to librdkafka, which reports them.
        return {
            **self._conf,
            "statistics.interval.ms": _EVERY_MS if every in (0, "0") else every,
            "stats_cb": self._heard,
        }

    def check(self) -> None:
        """To be asked now and then.

        Raises:
            KafkaNotReachable: this client reaches nobody, and will not for all that it does.
        """
        if self._alone is not None:
            raise KafkaNotReachable(self._alone)

    def hear(self, statistics: Mapping[str, Any]) -> None:
        """One report of librdkafka's."""
        if any(map(_is_used, (statistics.get("brokers") or {}).values())):
            self._since = self._alone = None
            return
        now = self._clock()
        if self._since is None:
            self._since = now
        elif now - self._since >= _PATIENCE_MS:
            self._alone = f"librdkafka has looked for no broker for {(now - self._since) / 1000:.0f} s"

    def _heard(self, statistics: str) -> None:
        self.hear(json.loads(statistics))
        if self._told is not None:
            self._told(statistics)


def _is_used(broker: Mapping[str, Any]) -> bool:
    """Whether a broker is connected, or was asked for a connection lately."""
    idle = broker.get("state") == "INIT" and broker.get("stateage", 0) >= _IDLE_US
    return broker.get("source") in _REAL and not idle
