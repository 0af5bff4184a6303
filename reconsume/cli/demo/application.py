"""The demo's application: a consumer group that processes flights, and fails as real ones do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from reconsume.cli.demo.rows import Row
from reconsume.cli.processing import Processing
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

__all__ = ["CannotProcess", "flights_application"]

_FAILS_SOMETIMES: Final = 20
"""One message in so many fails once or twice, then succeeds."""


class CannotProcess(Exception):
    """The application's own error."""


@contextmanager
def flights_application(
    bootstrap_servers: str,
    group: str,
    *,
    topic: str,
    processed: str,
    cannot_process: Callable[[Row], bool],
    max_reconsume_times: int,
) -> Iterator[None]:
    """Consume meanwhile.

    Processing a row means to publish it to another topic; the listener waits for that to be acknowledged.

    Args:
        bootstrap_servers: the cluster.
        group: the consumer group.
        topic: where the rows are.
        processed: where processed rows go.
        cannot_process: which rows always fail.
        max_reconsume_times: of the consumer.
    """
    processing = Processing(bootstrap_servers, processed)

    def on_messages(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        for message in messages:
            row = json.loads(message.body or b"{}")
            if cannot_process(row):
                raise CannotProcess("this row can never be processed")
            luck = zlib.crc32(str(message.origin).encode())
            if luck % _FAILS_SOMETIMES == 0 and message.reconsume_times <= luck // _FAILS_SOMETIMES % 2:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            processing.process(message.body, str(message.origin), message.key)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        group,
        bootstrap_servers=bootstrap_servers,
        conf={"auto.offset.reset": "earliest"},
        max_reconsume_times=max_reconsume_times,
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
