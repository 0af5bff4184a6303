"""Records that anybody may write: whatever their headers hold, they are delivered or fit into the quarantine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.targets.targets import Targets
from reconsume.bridge.scheduler.targets.timers import DelayTopics, Timers
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header

NAMES = TopicNames()
NOW = 1_700_000_000_000
HUGE = b"x" * 20_000
REAL_TOPICS: tuple[bytes | None, ...] = (
    *(b"%RETRY%g", b"%DLQ%g", b"orders", b"%RETRY%g\n\x00^.*[", b"%RETRY%" + HUGE, b"%DLQ%" + b"\x01" * 20_000),
    *(HUGE, b"\xff" * 20_000, b"", None, b"%RETRY%", b"%RETRY%%SYS%", b"..", b"orders "),
)
OTHERS: tuple[Header, ...] = (
    *(("RECONSUME_TIME", b"9" * 20_000), ("RECONSUME_TIME", None), ("DELAY", b"-99999999999999999")),
    *(("ORIGIN_MESSAGE_ID", HUGE), ("ORIGIN_MESSAGE_ID", b"o/" + b"9" * 5_000 + b"/1"), ("RETRY_TOPIC", HUGE)),
    *(("TIMER_DELIVER_MS", b"9" * 19), ("TIMER_DELAY_SEC", b"9" * 19), ("UNIQ_KEY", b"\xff")),
    *(("BORN_TIMESTAMP", b"9" * 19), ("REAL_QID", "²".encode()), ("REAL_QID", b"9" * 5_000)),
)
ADDED_BYTES = 4_096
"""Far less than the quarantine has room for beside the largest record."""


class AllThere:
    """A cluster with all topics."""

    def partitions(self, topics: Iterable[str], _refused: object = None) -> dict[str, int]:
        return dict.fromkeys(topics, 1)


class NoCancels:
    """Nothing was withdrawn."""

    def require(self, due_ms: float) -> None: ...

    def __contains__(self, withdrawal: bytes) -> bool:
        return False


@pytest.fixture
def router() -> Router:
    admin = cast("Any", AllThere())
    targets = Targets(NAMES, ["orders.*"], admin, admin, Groups)
    lanes = DelayTopics(NAMES, admin, Groups)
    return Router(NAMES, targets, Groups, Timers(NAMES, lanes, cast("Any", NoCancels()), lambda: NOW))


@pytest.mark.parametrize("topic", [NAMES.delay(1_000), NAMES.delay(0), NAMES.send_back])
def test_every_record_is_delivered_or_fits_into_the_quarantine(router: Router, topic: str) -> None:
    stamps = (TIMESTAMP_LOG_APPEND_TIME, NOW), (TIMESTAMP_NOT_AVAILABLE, -1)
    for real_topic, other, timestamp in product(REAL_TOPICS, OTHERS, stamps):
        headers = [other, ("RETRY_TOPIC", b"o"), ("REAL_TOPIC", real_topic)]
        record = Message(topic=topic, partition=0, offset=3, headers=[*headers], timestamp=timestamp)
        router.timers.due_ms(record)
        batch: list[Delivery] = []
        router.route([record], batch, topic)
        own, written = (sum(len(value or b"") for _, value in one) for one in (headers, batch[0].headers))
        assert written <= own + ADDED_BYTES, (real_topic or b"")[:20]
