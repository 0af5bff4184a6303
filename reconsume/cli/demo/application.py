"""The demo's application: a consumer group that processes flights, and fails as real ones do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from reconsume.cli.demo.rows import Row
from reconsume.cli.processing import Processing
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

__all__ = ["CannotProcess", "FlightsApplication"]

_FAILS_SOMETIMES: Final = 20
"""One message in so many fails once or twice, then succeeds."""


class CannotProcess(Exception):
    """The application's own error."""


class FlightsApplication:
    """Processing a row means to publish it to another topic; the listener waits for that to be acknowledged.

    Args:
        bootstrap_servers: the cluster.
        group: the consumer group.
        topic: where the rows are.
        processed: where processed rows go.
        cannot_process: which rows always fail.
        max_reconsume_times: of the consumer.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        group: str,
        *,
        topic: str,
        processed: str,
        cannot_process: Callable[[Row], bool],
        max_reconsume_times: int,
    ) -> None:
        self._cannot_process = cannot_process
        self._processing = Processing(bootstrap_servers, processed)
        self.consumer = PushConsumer(
            group,
            bootstrap_servers=bootstrap_servers,
            conf={"auto.offset.reset": "earliest"},
            max_reconsume_times=max_reconsume_times,
            consume_thread_nums=64,
        )
        self.consumer.subscribe(topic)
        self.consumer.register_message_listener(self._on_messages)

    def start(self) -> None:
        """Begin to consume."""
        self.consumer.start()

    def close(self) -> None:
        """Stop in order."""
        self.consumer.shutdown()
        self._processing.close()

    def _on_messages(
        self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        for message in messages:
            row = json.loads(message.body or b"{}")
            if self._cannot_process(row):
                raise CannotProcess("this row can never be processed")
            luck = zlib.crc32(str(message.origin).encode())
            if luck % _FAILS_SOMETIMES == 0 and message.reconsume_times <= luck // _FAILS_SOMETIMES % 2:
                return ConsumeConcurrentlyStatus.RECONSUME_LATER
            self._processing.process(message.body, str(message.origin), message.key)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
