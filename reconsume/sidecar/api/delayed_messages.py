"""Messages that are sent through the API, delayed or at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.topics.existing_topics import ExistingTopics
from reconsume.consumers.delayed.delay_producer import DelayProducer
from reconsume.delay_levels.errors import RecordTooLarge
from reconsume.delay_levels.wire.properties import size_of
from reconsume.sidecar.api.models import NewMessage, SentMessage, kafka_headers
from reconsume.sidecar.api.too_large import too_large
from reconsume.sidecar.guarding.shares import Threads
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats import Once
from reconsume.sidecar.settings import ProcessSettings


class DelayedMessages:
    """Sends messages. All methods but `close` are for the thread of one event loop.

    Args:
        settings: the settings of the process.
        admin: looks topics up.
        threads: threads for blocking calls.
    """

    def __init__(self, settings: ProcessSettings, admin: KafkaAdmin, threads: Threads) -> None:
        sidecar = settings.sidecar
        self._threads = threads
        self._names = settings.names
        self._once: Once[SentMessage] = Once(
            sidecar.remember_minutes * 60_000, sidecar.limits.records_in_flight, monotonic_ms
        )
        # Otherwise brokers that create topics automatically would create one for each misspelt name.
        self._admin = admin
        self._existing = ExistingTopics(self._admin, "make it, or mend its name")
        self._producer = DelayProducer(
            bootstrap_servers=settings.bootstrap_servers,
            conf=settings.client_settings(),
            send_msg_timeout=timedelta(seconds=max(0.1, sidecar.answer_seconds)),
            retry_times_when_send_failed=0,
            delay_levels=settings.message_delay_level,
            topic_prefix=settings.topic_prefix,
        )

    async def send(self, message: NewMessage, idempotency_key: str | None, caller: str) -> SentMessage:
        """Send one message; return when the brokers have acknowledged it.

        Args:
            message: the message.
            idempotency_key: with None, each call sends another message.
            caller: the owner of the key.

        Raises:
            Problem: 403, 409, 413 or 503.
            ReconsumeError: as `DelayProducer.send` does.
        """
        if self._names.kafka_topic(message.topic).startswith(self._names.prefix):
            raise Problem(
                "topic-not-allowed",
                f"topic {message.topic} is one of reconsume's own, which schedulers write to; send to a topic of yours",
            )
        owner = f"topic {message.topic}"  # a topic without a leader must not hold up messages for others

        sending = partial(self._threads.run, owner, partial(self._send, message))
        if idempotency_key is None:
            return await sending()
        key, subject = (caller, idempotency_key), hash(repr(message))
        return await self._once.run(owner, key, subject, lambda: asyncio.ensure_future(sending()))

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()

    def _send(self, message: NewMessage) -> SentMessage:
        self._existing.require(message.topic)
        headers = kafka_headers(message.headers)
        try:
            sent = self._producer.send(
                message.topic,
                message.value,
                key=message.key,
                headers=headers,
                tags=message.tags,
                keys=message.keys,
                delay_level=message.delay_level,
                deliver_at=message.deliver_at,
            )
        except RecordTooLarge as error:
            is_delayed = message.delay_level is not None or message.deliver_at is not None
            where = self._names.send_back if is_delayed else message.topic
            size = size_of(message.key, message.value, headers)
            way_out = "send a smaller one, or raise the topic's max.message.bytes"
            raise too_large(f"a message for {message.topic}", size, where, self._admin, way_out) from error
        return SentMessage(message_id=sent.msg_id, topic=sent.topic)
