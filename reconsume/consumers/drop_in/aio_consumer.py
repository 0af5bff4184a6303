"""The drop-in for `confluent_kafka.aio.AIOConsumer`."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Sequence
from typing import Any, Final

from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition
from confluent_kafka.aio import AIOConsumer as KafkaAIOConsumer

from reconsume.consumers.drop_in.consumer import Consumer

_CALLBACKS: Final = ("error_cb", "throttle_cb", "stats_cb", "on_commit", "logger")
_OF_NO_CLUSTER: Final[dict[str, Any]] = {"group.id": "unused", "log_level": 0}


class AIOConsumer(KafkaAIOConsumer):
    """A `confluent_kafka.aio.AIOConsumer` over the drop-in `Consumer`, whose keyword arguments it takes."""

    def __init__(
        self,
        consumer_conf: dict[str, Any],
        max_workers: int = 100,
        executor: concurrent.futures.Executor | None = None,
        *,
        max_reconsume_times: int | None = None,
        delay_levels: str | None = None,
        topic_prefix: str = "reconsume.",
        exactly_once: bool = False,
        dead_letter_on: Collection[type[BaseException]] = (),
    ) -> None:
        # The base class makes its own consumer and puts wrapped callbacks into the given dictionary. That consumer
        # knows no broker: its close would give errors to a callback, which waits for the loop that waits here.
        callbacks = {name: consumer_conf[name] for name in _CALLBACKS if name in consumer_conf}
        super().__init__(spare := _OF_NO_CLUSTER | callbacks, max_workers=max_workers, executor=executor)
        self._consumer.close()
        self._consumer: Consumer = Consumer(
            consumer_conf | {name: spare[name] for name in callbacks},
            max_reconsume_times=max_reconsume_times,
            delay_levels=delay_levels,
            topic_prefix=topic_prefix,
            exactly_once=exactly_once,
            dead_letter_on=dead_letter_on,
        )

    @property
    def retry_topic(self) -> str:
        """Return the Kafka topic of `%RETRY%<group>`."""
        return self._consumer.retry_topic

    async def send_message_back(
        self,
        message: KafkaMessage | TopicPartition | Sequence[KafkaMessage],
        delay_level: int = 0,
        cause: object = None,
        *,
        ack_index: int | None = None,
    ) -> None:
        """Send messages back as `Consumer.send_message_back` does, without blocking the event loop."""
        await self._call(
            self._consumer.send_message_back, message, delay_level=delay_level, cause=cause, ack_index=ack_index
        )
