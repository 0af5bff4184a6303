"""Tell hooks of send-backs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.writing.send_back import OnDone
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks, SendBackTarget, SendMessageBackContext
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.senders import SendsBack
from reconsume.delay_levels.errors import SendBackFailed, SubscriptionGroupNotExist
from reconsume.delay_levels.rules.send_back import DeadLetter, Delayed, decide_send_back
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

__all__ = ["HookedSender", "Way", "decided", "dropped_way", "way_of"]


class Way(NamedTuple):
    """Where a failed message goes, how long it waits there, and the count it gets."""

    target: SendBackTarget
    delay_level: int
    reconsume_times: int


def decided(request: SendBackRequest, groups: Groups) -> tuple[Delayed | DeadLetter | None, int]:
    """What the send-back rule says with the groups as they are, None for a group without retry queues; the maximum.

    Raises:
        SubscriptionGroupNotExist: the group must be registered first.
    """
    config = groups.find(request.group)
    maximum = config.retry_max_times if request.max_reconsume_times is None else request.max_reconsume_times
    if config.retry_queue_nums <= 0:
        return None, maximum
    policy = config.policy(groups.table)
    return decide_send_back(request.stored.reconsume_times, request.delay_level, maximum, policy), maximum


def way_of(request: SendBackRequest, groups: Groups) -> Way:
    """The same as hooks are told it."""
    try:
        outcome, _ = decided(request, groups)
    except SubscriptionGroupNotExist:
        return Way(SendBackTarget.UNDECIDED, request.delay_level, request.stored.reconsume_times + 1)
    if outcome is None:
        return dropped_way(request)
    if isinstance(outcome, Delayed):
        return Way(SendBackTarget.RETRY, outcome.level, outcome.reconsume_times)
    return Way(SendBackTarget.DEAD_LETTER, 0, outcome.reconsume_times)


def dropped_way(request: SendBackRequest) -> Way:
    """What becomes of a request that nobody writes."""
    return Way(SendBackTarget.DROPPED, 0, request.stored.reconsume_times)


class HookedSender:
    """Sends back through another sender, and tells when that has answered.

    What was given up because its partition is gone is not told: its next owner has it.

    Args:
        sender: does it.
        hooks: are told.
        way: of a request; asked when it is sent.
    """

    def __init__(self, sender: SendsBack, hooks: ConsumeHooks, way: Callable[[SendBackRequest], Way]) -> None:
        self._sender = sender
        self._hooks = hooks
        self._way = way

    def send_back(self, queue: ProcessQueue, message: Message, request: SendBackRequest, on_done: OnDone) -> None:
        """Write the send-back; the hooks are told after `on_done`, so a slow one does not hold up the message."""
        begun, way = self._hooks.clock(), self._way(request)

        def done(error: SendBackFailed | None) -> None:
            on_done(error)
            self._hooks.sent_back(
                SendMessageBackContext(
                    request.group, message, *way, self._hooks.clock() - begun, cause=request.cause, error=error
                )
            )

        self._sender.send_back(queue, message, request, done)
