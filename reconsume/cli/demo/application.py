"""The demo's application: a consumer group that processes flights, and fails as real ones do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from reconsume.cli.demo.rows import Row
from reconsume.cli.judging.judge import DEAD, MAX_RECONSUME_TIMES
from reconsume.cli.processing import Processing
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

__all__ = ["CannotProcess", "failures_of", "flights_application"]

_FAILS_SOMETIMES: Final = 20
"""One message in so many fails once or twice, then succeeds."""


class CannotProcess(Exception):
    """The application's own error."""


def failures_of(body: bytes | None, origin: str, cannot_process: Callable[[Row], bool]) -> int:
    """How often a message fails before it succeeds, or until it is dead.

    Args:
        body: a row.
        origin: where the message first stood, `<topic>/<partition>/<offset>`.
        cannot_process: which rows always fail.
    """
    if cannot_process(json.loads(body or b"{}")):
        return DEAD
    luck = zlib.crc32(origin.encode())
    return luck // _FAILS_SOMETIMES % 2 + 1 if luck % _FAILS_SOMETIMES == 0 else 0


@contextmanager
def flights_application(
    bootstrap_servers: str, group: str, *, topic: str, processed: str, cannot_process: Callable[[Row], bool]
) -> Iterator[None]:
    """Consume meanwhile.

    Processing a row means to publish it to another topic; the listener waits for that to be acknowledged.

    Args:
        bootstrap_servers: the cluster.
        group: the consumer group.
        topic: where the rows are.
        processed: where processed rows go.
        cannot_process: which rows always fail.
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
    consumer.start()
    try:
        yield
    finally:
        consumer.shutdown()
        processing.close()
