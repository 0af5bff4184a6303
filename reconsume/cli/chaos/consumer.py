"""A consumer under test, as a program: `python -m reconsume.cli.chaos.consumer BOOTSTRAP_SERVERS`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from reconsume.cli.chaos.workload import GROUP, MAX_RECONSUME_TIMES, ORIGIN, PROCESSED, SESSION, failures_in
from reconsume.cli.logs import configure_logs
from reconsume.cli.processing import Processing
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Message,
    PushConsumer,
    listener_call,
)

__all__ = ["consume"]


class _Listener:
    """Fails as often as a message says, then processes it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._processing = Processing(bootstrap_servers, PROCESSED, may_repeat=True)

    def __call__(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            # As it is stored: a send-back that was refused is a local try more, and no copy on a delay topic.
            if message.stored.reconsume_times < failures_in(message.body):
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            self._processing.process(message.body, str(message.origin))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def consume(bootstrap_servers: str) -> None:
    """Until SIGTERM."""
    consumer = PushConsumer(
        GROUP,
        bootstrap_servers=bootstrap_servers,
        conf={
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            **SESSION,
        },
        max_reconsume_times=MAX_RECONSUME_TIMES,
        exactly_once=True,
    )
    consumer.subscribe(ORIGIN)
    consumer.register_message_listener(_Listener(bootstrap_servers))
    consumer.run()


if __name__ == "__main__":
    configure_logs("INFO", "console")
    # The listener fails on purpose.
    logging.getLogger(listener_call.__name__).setLevel(logging.CRITICAL)
    consume(sys.argv[1])
