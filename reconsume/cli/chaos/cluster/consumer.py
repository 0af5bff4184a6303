"""A consumer under test, as a program: `python -m reconsume.cli.chaos.cluster.consumer BOOTSTRAP_SERVERS [poisoned]`.

With `poisoned` it consumes as the poisoned group, whose listener misbehaves if a message says so.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from reconsume.cli.chaos.poison import GROUP_OF_POISON, ORIGIN_OF_POISON, poison_in, slip
from reconsume.cli.chaos.workload import GROUP, ORIGIN, PROCESSED, SESSION, failures_in
from reconsume.cli.judging.judge import MAX_RECONSUME_TIMES, Poison
from reconsume.cli.logs import configure_logs
from reconsume.cli.processing import Processing
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from reconsume.consumers.listeners import listener_call
from reconsume.consumers.sending import send_back_log


class _Listener:
    """Fails as often as a message says, then processes it."""

    def __init__(self, bootstrap_servers: str, fail: Callable[[Message, ConsumeConcurrentlyContext], object]) -> None:
        self._processing = Processing(bootstrap_servers, PROCESSED, may_repeat=True)
        self._fail = fail

    def __call__(self, messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> Any:
        for message in messages:
            # The stored count: a refused send-back is one more local try, without a copy on a delay topic.
            if message.stored.reconsume_times < failures_in(message.body):
                return self._fail(message, context)
            self._processing.process(message.body, str(message.origin))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def _later(_message: Message, _context: ConsumeConcurrentlyContext) -> object:
    return ConsumeConcurrentlyStatus.RECONSUME_LATER


def _poisoned(message: Message, context: ConsumeConcurrentlyContext) -> object:
    is_slip = poison_in(message.body) is Poison.SLIP
    return slip(message.body, context) if is_slip else _later(message, context)


def consume(bootstrap_servers: str, *, poisoned: bool = False) -> None:
    """Consume until SIGTERM."""
    consumer = PushConsumer(
        GROUP_OF_POISON if poisoned else GROUP,
        bootstrap_servers=bootstrap_servers,
        conf={"auto.offset.reset": "earliest", "partition.assignment.strategy": "cooperative-sticky", **SESSION},
        max_reconsume_times=MAX_RECONSUME_TIMES,
        exactly_once=True,
    )
    consumer.subscribe(ORIGIN_OF_POISON if poisoned else ORIGIN)
    consumer.register_message_listener(_Listener(bootstrap_servers, _poisoned if poisoned else _later))
    consumer.run()


if __name__ == "__main__":
    configure_logs("INFO", "console")
    # The listener fails on purpose.
    for module in (listener_call, send_back_log):
        logging.getLogger(module.__name__).setLevel(logging.CRITICAL)
    consume(sys.argv[1], poisoned=sys.argv[2:] == ["poisoned"])
