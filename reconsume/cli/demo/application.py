"""The demo's application: a consumer group that processes flights, and fails as real ones do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from reconsume.cli.demo.rows import Row
from reconsume.cli.judging.judge import DEAD, MAX_RECONSUME_TIMES
from reconsume.cli.processing import Processing
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

_FAILS_SOMETIMES: Final = 20
"""One message in this many fails once or twice, then succeeds."""


class CannotProcess(Exception):
    """The application's own error."""


def failures_of(body: bytes | None, origin: str, cannot_process: Callable[[Row], bool]) -> int:
    """Return how often a message fails before it succeeds, or until it is dead.

    Args:
        body: the row.
        origin: the place of the first copy, `<topic>/<partition>/<offset>`.
        cannot_process: returns whether a row always fails.
    """
    if cannot_process(json.loads(body or b"{}")):
        return DEAD
    luck = zlib.crc32(origin.encode())
    return luck // _FAILS_SOMETIMES % 2 + 1 if luck % _FAILS_SOMETIMES == 0 else 0


@contextmanager
def flights_application(
    bootstrap_servers: str, group: str, *, topic: str, processed: str, cannot_process: Callable[[Row], bool]
) -> Iterator[None]:
    """Consume while the block runs.

    To process a row, the listener publishes it to another topic and waits for the acknowledgement.

    Args:
        bootstrap_servers: the cluster.
        group: the consumer group.
        topic: the topic of the rows.
        processed: the topic for processed rows.
        cannot_process: returns whether a row always fails.
    """
    processing = Processing(bootstrap_servers, processed)

    def on_messages(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            failures = failures_of(message.body, str(message.origin), cannot_process)
            if message.reconsume_times < failures:
                if failures == DEAD:
                    raise CannotProcess("this row can never be processed")
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            processing.process(message.body, str(message.origin), message.key)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        group,
        bootstrap_servers=bootstrap_servers,
        conf={"auto.offset.reset": "earliest"},
        max_reconsume_times=MAX_RECONSUME_TIMES,
        consume_thread_nums=64,
    )
    consumer.subscribe(topic)
    consumer.register_message_listener(on_messages)
    with closing(processing):
        try:
            consumer.start()
            yield
        finally:
            consumer.shutdown()
