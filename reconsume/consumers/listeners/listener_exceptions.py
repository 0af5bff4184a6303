"""What a listener of ours may raise to say more than a status can. Users' listeners do not: they have the context."""

from __future__ import annotations

from reconsume.delay_levels.wire.send_back_copy import Cause

__all__ = ["NotNow", "SendBack"]


class NotNow(Exception):
    """No outcome: the messages are given again later, which counts as no attempt.

    Until then nothing else of their partition, or of their key, is begun.

    Attributes:
        until_ms: no sooner than this moment.
        acknowledged: so many messages from the front of the batch succeeded all the same.
    """

    def __init__(self, until_ms: float, acknowledged: int = 0) -> None:
        super().__init__(until_ms)
        self.until_ms = until_ms
        self.acknowledged = acknowledged


class SendBack(Exception):
    """The messages are sent back, also by an orderly listener: those behind them go on.

    Attributes:
        cause: what a dead letter shows.
        level: 0 lets the group's levels decide, a higher one is taken as it is, a negative one asks for the
            dead-letter topic.
        acknowledged: so many messages from the front of the batch succeeded all the same.
        one_by_one: the others are not sent back but given again at once, each alone.
    """

    def __init__(self, cause: Cause, level: int = 0, acknowledged: int = 0, *, one_by_one: bool = False) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.level = level
        self.acknowledged = acknowledged
        self.one_by_one = one_by_one
