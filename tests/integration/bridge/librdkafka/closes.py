"""A program whose consumer closes when it is told to, and never polls. Its callback is slower than the brokers."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.consumers import Consumer

_SLOW_SECONDS = 1.0


def slowly(*_: object) -> None:
    time.sleep(_SLOW_SECONDS)


def member(kind: str, settings: dict[str, Any], topic: str, topic_prefix: str) -> Callable[[], None]:
    """Subscribe a consumer; how it is closed."""
    if kind == "drop-in":
        consumer = Consumer(settings, topic_prefix=topic_prefix)
        consumer.subscribe([topic], on_assign=lambda *_: sys.stderr.write("told the program\n"), on_revoke=slowly)
        return consumer.close
    one = GroupConsumer(settings)
    one.owner = Mock(revoked=slowly)
    one.subscribe([topic])
    return one.close


if __name__ == "__main__":
    close = member(*json.loads(sys.argv[1]))
    sys.stdin.readline()
    close()
