"""Write send-backs to Kafka and tell when the brokers have acknowledged them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.groups import Groups
from reconsume.bridge.kafka import producer_settings, translate
from reconsume.bridge.scheduler.routing import choose_partition
from reconsume.delay_levels.errors import ReconsumeError, SendBackFailed, TopicNotReady
from reconsume.delay_levels.names import TopicNames
from reconsume.delay_levels.send_back import SendBackCopy, SendBackRequest, inbox_copy, send_back_copy

__all__ = ["ExistingTopics", "OnDone", "SendBackWriter", "direct_copy"]

logger = logging.getLogger(__name__)

OnDone = Callable[[SendBackFailed | None], None]
"""Called once: with None when the send-back is acknowledged, with the error when it is not."""

_SERVE_SECONDS: Final = 0.1


def direct_copy(request: SendBackRequest, key: bytes | None, names: TopicNames, groups: Groups) -> SendBackCopy | None:
    """The copy that the send-back rule asks for; None for a group without retry queues.

    Raises:
        SubscriptionGroupNotExist: the group must be registered first.
    """
    config = groups.find(request.group)
    if config.retry_queue_nums <= 0:
        # RocketMQ: BR-04. The consumer has warned of it at its start.
        return None
    return send_back_copy(
        request,
        names,
        config.policy(groups.table),
        group_max_reconsume_times=config.retry_max_times,
        real_qid=choose_partition(key, config.retry_queue_nums),
    )


class ExistingTopics:
    """Never let the brokers make a topic of ours by themselves: it would have the wrong timestamps."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin
        self._known: set[str] = set()

    def require(self, topic: str) -> None:
        """Raises `TopicNotReady` if it does not exist, `KafkaNotReachable` if nobody can tell."""
        if topic in self._known:
            return
        if topic not in self._admin.partitions([topic]):
            raise TopicNotReady(f"topic {topic} does not exist; make it: reconsume topics apply")
        self._known.add(topic)

    def forget(self, topic: str) -> None:
        """Look again the next time."""
        self._known.discard(topic)


class SendBackWriter:
    """Sends failed messages back. Safe to use from several threads.

    A send-back that fails is tried once more as an ordinary message to the SEND_BACK inbox (RocketMQ: SB-04, SB-05);
    after that the caller must keep the message. While no broker answers nothing fails: the record waits in the
    producer, because a second copy of one that was stored after all would be a duplicate (RocketMQ: SB-13).

    Args:
        base: librdkafka's settings for any client.
        names: the installation's topics.
        groups: the groups as known now.
        client_id: shown in the brokers' logs.
    """

    def __init__(
        self, base: Mapping[str, Any], names: TopicNames, groups: Callable[[], Groups], client_id: str
    ) -> None:
        self._names = names
        self._groups = groups
        self._existing = ExistingTopics(KafkaAdmin(base, client_id))
        self._producer = Producer(producer_settings(base, client_id))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="reconsume-send-back", daemon=True)
        self._thread.start()

    def send_back(self, request: SendBackRequest, key: bytes | None, value: bytes | None, on_done: OnDone) -> None:
        """Write the copy that the send-back rule asks for; `on_done` may be called in another thread."""
        try:
            copy = direct_copy(request, key, self._names, self._groups())
            if copy is None:
                on_done(None)
                return
            self._existing.require(copy.topic)
        except ReconsumeError as error:
            self._as_ordinary_message(request, key, value, error, on_done)
            return

        def acknowledged(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                on_done(None)
            else:
                self._existing.forget(copy.topic)
                cause = translate(error, f"sending back to {copy.topic}")
                self._as_ordinary_message(request, key, value, cause, on_done)

        self._produce(copy, key, value, acknowledged)

    def flush(self, seconds: float) -> int:
        """Wait until all are acknowledged; gives how many are not."""
        return self._producer.flush(seconds)

    def close(self) -> None:
        """Stop; what is not acknowledged is given up, its `on_done` gets an error."""
        # First of all, so that what is given up is not tried a second time as an ordinary message.
        self._stop.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(1)
        self._producer.close()

    def _as_ordinary_message(
        self, request: SendBackRequest, key: bytes | None, value: bytes | None, first: ReconsumeError, on_done: OnDone
    ) -> None:
        if self._stop.is_set():
            on_done(SendBackFailed(str(first)))
            return
        copy = inbox_copy(request, self._names)

        def acknowledged(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                logger.warning("%s; the scheduler has taken it through %s", first, copy.topic)
                on_done(None)
            else:
                second = translate(error, f"sending back to {copy.topic}")
                on_done(SendBackFailed(f"{first}; then {second}"))

        try:
            self._existing.require(copy.topic)
        except ReconsumeError as error:
            on_done(SendBackFailed(f"{first}; then {error}"))
            return
        self._produce(copy, key, value, acknowledged)

    def _produce(self, copy: SendBackCopy, key: bytes | None, value: bytes | None, on_delivery: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    copy.topic, value=value, key=key, headers=list(copy.headers), on_delivery=on_delivery
                )
            except BufferError:
                self._producer.poll(_SERVE_SECONDS)
            except KafkaException as error:
                # The copy is larger than any producer may send, or the producer is broken.
                on_delivery(error.args[0], None)
                return
            else:
                return

    def _serve(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_SERVE_SECONDS)
