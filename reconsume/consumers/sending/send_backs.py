"""Send back what listeners failed, and tell the log and hooks what becomes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.writing.send_back import OnDone
from reconsume.consumers.message import Message
from reconsume.consumers.observing.hooks import ConsumeHooks, SendMessageBackContext
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog, dropped_way, fate_of, way_of
from reconsume.consumers.sending.senders import Sender
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause, SendBackRequest

__all__ = ["ListenerSendBacks", "request_of"]

logger = logging.getLogger(__name__)


def request_of(group: str, message: Message, level: int, maximum: int | None, cause: Cause | None) -> SendBackRequest:
    """Return the request to send a message back, with the count that its record has."""
    return SendBackRequest(
        group=group,
        headers=message.all_headers,
        stored=message.stored,
        delay_level=level,
        max_reconsume_times=maximum,
        cause=cause,
    )


class ListenerSendBacks:
    """Sends back for the listeners of one consumer.

    Guarantees: `on_done` is called once, also where the sender raises, so no message is left between listener and
    sender. The log and the hooks are told after it, so a slow hook does not hold up the message. What was given up
    because its partition is gone is not told: its next owner has it.
    Tests: tests/unit/consumers/test_slips.py, tests/unit/consumers/observing/test_hooks.py.

    Args:
        sender: writes.
        log: of the consumer group.
        groups: the groups as known now; None for a consumer that broadcasts, whose sender drops what fails.
        hooks: are told; None without any.
    """

    def __init__(
        self,
        sender: Sender,
        log: SendBackLog,
        groups: Callable[[], Groups] | None,
        hooks: ConsumeHooks | None = None,
    ) -> None:
        self.log = log
        self._sender = sender
        self._groups = groups
        self._hooks = hooks

    def send(
        self,
        queue: ProcessQueue,
        message: Message,
        level: int,
        cause: Cause | None,
        maximum: int | None,
        on_done: OnDone,
        *,
        counts_here: bool = False,
    ) -> None:
        """Send a message back; `on_done` may be called in another thread.

        Args:
            queue: of the message's partition.
            message: what failed.
            level: the wish.
            cause: why it failed.
            maximum: how often it may be sent back; None takes the group's.
            on_done: is told when it is acknowledged, or has failed.
            counts_here: what failed in its place counts as sent back, as in order it does.
        """
        request = request_of(self.log.group, message, level, maximum, cause)
        if counts_here:
            request = replace(request, stored=replace(request.stored, reconsume_times=message.reconsume_times))
        answers: list[SendBackFailed | None] = []

        def once(error: SendBackFailed | None) -> None:
            if not answers:
                answers.append(error)
                on_done(error)

        try:
            self._send(queue, message, request, once)
        except Exception as error:
            logger.exception("an error while %r was sent back", message)
            once(SendBackFailed(Cause.of(error).message))

    def _send(self, queue: ProcessQueue, message: Message, request: SendBackRequest, on_done: OnDone) -> None:
        way = dropped_way(request) if self._groups is None else way_of(request, self._groups())
        begun = 0.0 if self._hooks is None else self._hooks.clock()

        def done(error: SendBackFailed | None) -> None:
            on_done(error)
            if error is None and self._groups is not None:
                self.log.tell(message, fate_of(way), is_failure=request.cause is not None)
            if self._hooks is not None:
                elapsed_ms = self._hooks.clock() - begun
                self._hooks.sent_back(
                    SendMessageBackContext(
                        request.group, message, *way[:3], elapsed_ms, cause=request.cause, error=error
                    )
                )

        self._sender.send_back(queue, message, request, done)
