"""Whether a consumer is a member of its group, as librdkafka's statistics tell it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from reconsume.bridge.brokers_clock import monotonic_ms
from reconsume.bridge.clock import Clock
from reconsume.delay_levels.errors import ReconsumeError

__all__ = ["Membership", "MembershipLost"]

_EVERY_MS: Final = 10_000
_PATIENCE_MS: Final = 120_000.0
"""Longer than the loss of a broker takes librdkafka, with a request that is waited for 60 s."""
_NO_BROKERS_MS: Final = 5_000.0
"""Brokers that are put away are taken up again within milliseconds, or never."""
_MAX_POLL_INTERVAL_MS: Final = 300_000


class MembershipLost(ReconsumeError):
    """This consumer is no use to its group any more, and will not be; another consumer will."""


class Membership:
    """Remembers when librdkafka was a settled member last, and when it knew the group's coordinator, or any broker.

    A broker that has just started may answer that the cluster has topics but no brokers; librdkafka (2.10 to 2.16)
    then puts all brokers away, also those of `bootstrap.servers`, and may never take them up again (its issue 5301).
    It connects to nobody, polls give nothing, and questions for committed offsets are never answered. No error tells of
    it, so without a look the group's messages wait until somebody starts the process again.

    A rebalance may take as long as the slowest member may take for a poll, so a member that knows its coordinator is
    given that time.

    Args:
        conf: the consumer's settings; a `stats_cb` in it is told too.
        patience_ms: for finding the coordinator.
        clock: milliseconds that only grow.
    """

    def __init__(
        self, conf: Mapping[str, Any], *, patience_ms: float = _PATIENCE_MS, clock: Clock = monotonic_ms
    ) -> None:
        self._told: Callable[[str], object] | None = conf.get("stats_cb")
        self._conf = conf
        self._patience_ms = patience_ms
        self._clock = clock
        self._settled = self._found = clock()
        self._lost: str | None = None
        self._alone_since: float | None = None
        self._alone: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The same settings with statistics, which come while the consumer polls."""
        every = self._conf.get("statistics.interval.ms", 0)
        # What is no number is left to librdkafka, which says so.
        return {
            **self._conf,
            "statistics.interval.ms": _EVERY_MS if every in (0, "0") else every,
            "stats_cb": self._heard,
        }

    def check(self, *, has_partitions: bool) -> None:
        """To be asked now and then; one that has partitions is a member as long as nobody takes them away.

        Raises:
            MembershipLost: it is no member, or knows no broker, and will not for all that it does.
        """
        if self._alone is not None:
            raise MembershipLost(self._alone)
        if self._lost is not None and not has_partitions:
            raise MembershipLost(self._lost)

    def _heard(self, statistics: str) -> None:
        told = json.loads(statistics)
        group = told.get("cgrp") or {}
        self._look(str(group.get("state")), str(group.get("join_state")))
        self._look_for_brokers(one.get("source") for one in (told.get("brokers") or {}).values())
        if self._told is not None:
            self._told(statistics)

    def _look_for_brokers(self, sources: Iterable[str]) -> None:
        """Of those that librdkafka was given or has heard of; a logical one is but another name for one of them."""
        self._alone = None
        if any(source in ("configured", "learned") for source in sources):
            self._alone_since = None
            return
        now = self._clock()
        if self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since >= _NO_BROKERS_MS:
            self._alone = f"librdkafka knows no broker for {(now - self._alone_since) / 1000:.0f} s and looks for none"

    def _look(self, state: str, join_state: str) -> None:
        now = self._clock()
        if state == "up":
            self._found = now
            if join_state == "steady":
                self._settled = now
        without, unsettled = now - self._found, now - self._settled
        self._lost = None
        if without >= self._patience_ms:
            self._lost = f"the group's coordinator has not been found for {without / 1000:.0f} s ({state})"
        elif unsettled >= self._patience_ms + float(self._conf.get("max.poll.interval.ms", _MAX_POLL_INTERVAL_MS)):
            self._lost = f"no member of the group for {unsettled / 1000:.0f} s ({join_state})"
