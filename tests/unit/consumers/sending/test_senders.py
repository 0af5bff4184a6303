"""What a sender waits for."""

from __future__ import annotations

import time
from typing import Any, cast

from reconsume.consumers.sending.send_back_log import SendBackLog
from reconsume.consumers.sending.senders import PlainSender


class Idle:
    """A writer and a consumer with nothing to do."""

    def flush(self, _seconds: float) -> int:
        return 0

    def commit(self, _points: object, *, wait: bool) -> list[Any]:
        assert isinstance(wait, bool)
        return []


def test_one_that_was_closed_has_nothing_to_wait_for() -> None:
    """A consumer is closed after its sender, and settles once more in the rebalance of that."""
    idle = cast("Any", Idle())
    sender = PlainSender(log=SendBackLog("departures"), writer=idle, consumer=idle)
    sender.start()
    assert sender.settle((), 60)
    sender.close()
    began = time.monotonic()
    assert sender.settle((), 600)
    assert time.monotonic() - began < 300
