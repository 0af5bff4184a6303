"""Whether a consumer is a member of its group and will read, and how it leaves the group without hanging."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from reconsume.bridge.librdkafka.connections import Connections
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.polled_records import ClientError
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

_PATIENCE_MS: Final = 120_000.0
"""Longer than librdkafka needs to notice the loss of a broker, with a request that waits for 60 s."""
_MAX_POLL_INTERVAL_MS: Final = 300_000
_NO_START: Final = "Failed to fetch committed offset"
_TAKE_SECONDS: Final = 5.0


class MembershipLost(ReconsumeError):
    """This consumer is no longer a member of its group, or never reads its partitions; a new consumer helps."""


def never_starts(error: ClientError) -> bool:
    """Return whether some of the assigned partitions will never be read.

    librdkafka (2.16) asks the group's coordinator for the offsets at which assigned partitions start. Only errors like
    a lost connection are repeated. After others, as when the coordinator has just moved, the partitions stay assigned
    and are not read, and those of later assignments wait for them. A polled error is the only sign.
    Issue: https://github.com/confluentinc/librdkafka/issues/5586.

    Guarantees: the consumer restarts at once, in a worker and in a `PushConsumer`.
    Tests: tests/integration/bridge/librdkafka/test_membership.py, tests/unit/consumers/test_consume_loop.py,
    tests/unit/bridge/scheduler/test_worker.py.
    Remove when: librdkafka asks again after any error that passes.
    """
    return _NO_START in error.str()


class Membership(Connections):
    """Notes when librdkafka was last a stable member, when it last knew its coordinator, and its connections.

    librdkafka may stop looking for brokers (see `Connections`). Without this check the group's messages would wait
    until the process is restarted, also those of partitions that the group still assigns to this member.

    A rebalance may take as long as the slowest member's poll, so a member that knows its coordinator gets that time.

    Guarantees: a consumer without partitions that has found no coordinator for two minutes restarts, in a worker and in
    a `PushConsumer`. Tests: tests/unit/bridge/librdkafka/test_membership.py,
    tests/integration/scheduler/test_lost_membership.py.

    Remove when: `Connections` goes, and librdkafka reports a coordinator that it does not find as an error.

    Args:
        conf: the consumer's settings; their `stats_cb` is called too.
        patience_ms: time to find the coordinator.
        clock: monotonic milliseconds.
    """

    def __init__(
        self, conf: Mapping[str, Any], *, patience_ms: float = _PATIENCE_MS, clock: Clock = monotonic_ms
    ) -> None:
        super().__init__(conf, clock=clock)
        self._patience_ms = patience_ms
        self._settled = self._found = clock()
        self._lost: str | None = None

    def check(self, *, has_partitions: bool = True) -> None:
        """Check the membership; call it periodically. A consumer with partitions is a member until they are revoked.

        Raises:
            MembershipLost: the consumer is not a member, or knows no broker, and never will.
        """
        try:
            super().check()
        except KafkaNotReachable as error:
            raise MembershipLost(str(error)) from error
        if self._lost is not None and not has_partitions:
            raise MembershipLost(self._lost)

    def hear(self, statistics: Mapping[str, Any]) -> None:
        """Process a report of librdkafka."""
        super().hear(statistics)
        group = statistics.get("cgrp") or {}
        self._look(str(group.get("state")), str(group.get("join_state")))

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


class ClosingMember(Protocol):
    """A consumer that is about to close."""

    def memberid(self) -> str | None:
        """Return its id in the group, if it is a member."""

    def assignment(self) -> Sequence[Any]:
        """Return its partitions."""

    def pause(self, partitions: Any, /) -> None:
        """Read no more of them."""


def take_assignment(consumer: ClosingMember, poll: Callable[[float], Any]) -> None:
    """Poll an assignment that waits, right before `Consumer.close`; an exception of its callback passes.

    `Consumer.close` (librdkafka 2.16) gives an assignment that nobody has polled to its callback, and then its
    revocation. The answer to the first counts for both, so the member leaves and its group ends. If that happens while
    the second one is being answered, the answer never comes (`rd_kafka_cgrp_op_serve` drops it). confluent-kafka keeps
    the GIL meanwhile, so no thread of the process runs any more. A static member leaves at once, so one such close
    in eight hung; others hang on a busy machine.
    Issue: https://github.com/confluentinc/librdkafka/issues/4884.

    Guarantees: workers, `PushConsumer`s and drop-in consumers end though an assignment waits.
    Test: tests/integration/bridge/librdkafka/test_closing.py.
    Remove when: librdkafka answers what is asked after the end of a group.

    Args:
        consumer: the consumer; nothing happens if it is closed or no member of a group.
        poll: its `poll`. The partitions are paused, so hardly ever a message comes; the next owner reads it again.
            If a poll stores the offset of what it returns, the callback must pause new partitions too.
    """
    try:
        is_member = bool(consumer.memberid())
    except RuntimeError:
        is_member = False
    if not is_member:
        return
    consumer.pause(consumer.assignment())
    deadline = time.monotonic() + _TAKE_SECONDS
    while poll(0) is not None and time.monotonic() < deadline:
        pass
