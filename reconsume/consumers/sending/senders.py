"""How a failed message and the offsets of its partition reach Kafka: one after the other, or in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.writing.send_back import OnDone, SendBackWriter
from reconsume.consumers.message import Message
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.delay_levels.wire.send_back_copy import SendBackRequest

__all__ = ["PlainSender", "Sender"]

logger = logging.getLogger(__name__)


class Sender:
    """Sends back and commits for one consumer; only the thread that polls calls the other methods than `send_back`."""

    def send_back(self, queue: ProcessQueue, message: Message, request: SendBackRequest, on_done: OnDone) -> None:
        """Write the send-back; `on_done` is called once, maybe in another thread."""
        raise NotImplementedError

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit what is finished, without waiting for it."""
        raise NotImplementedError

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for what is on its way, commit what is finished; False if something is still on its way."""
        raise NotImplementedError

    def leave(self, queues: Iterable[ProcessQueue], seconds: float) -> None:
        """These were dropped and are given away: settle what is on its way, then commit."""
        if not self.settle(queues, seconds):
            logger.warning("not all send-backs were acknowledged before a rebalance; they may come twice")

    def serve(self) -> None:
        """Called at every turn of the thread that polls."""

    def forget(self, queues: Iterable[ProcessQueue]) -> None:
        """These belong to somebody else already: nothing may be sent or committed for them."""

    def close(self) -> None:
        """The consumer is about to be closed: use it no more."""


class PlainSender(Sender):
    """The send-back first; when it is acknowledged its offset may be committed. A crash between repeats it.

    Args:
        writer: writes send-backs.
        consumer: commits.
    """

    def __init__(self, writer: SendBackWriter, consumer: Consumer) -> None:
        self._writer = writer
        self._consumer = consumer

    def send_back(self, queue: ProcessQueue, message: Message, request: SendBackRequest, on_done: OnDone) -> None:
        """Write the send-back, for whatever partition."""
        del queue
        self._writer.send_back(request, message.key, message.body, on_done)

    def commit(self, queues: Iterable[ProcessQueue]) -> None:
        """Commit what was not committed yet; the answer comes with a later poll."""
        pending = {queue: point for queue in queues if (point := queue.to_commit) is not None}
        if self._commit(pending, asynchronous=True) is not None:
            for queue, point in pending.items():
                queue.committed = point

    def settle(self, queues: Iterable[ProcessQueue], seconds: float) -> bool:
        """Wait for send-backs on their way, then commit."""
        settled = not self._writer.flush(seconds)
        # Also what was committed before: the answer to that may not have come yet.
        pending = {queue: point for queue in queues if (point := queue.commit_point()) is not None}
        answers = self._commit(pending, asynchronous=False)
        refused = {(one.topic, one.partition): one.error for one in answers or () if one.error is not None}
        for (topic, partition), refusal in refused.items():
            logger.warning("%s", translate(refusal, f"committing offsets of {topic}-{partition}"))
        for queue, point in pending.items():
            done = answers is not None and (queue.topic, queue.partition) not in refused
            queue.committed = point if done else None
        return settled

    def _commit(self, points: Mapping[ProcessQueue, Commit], *, asynchronous: bool) -> Sequence[TopicPartition] | None:
        """The answers, none yet if asynchronous; None if it failed as a whole."""
        offsets = [TopicPartition(queue.topic, queue.partition, *point) for queue, point in points.items()]
        if not offsets:
            return ()
        try:
            if not asynchronous:
                return self._consumer.commit(offsets=offsets, asynchronous=False) or ()
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                # Not committed is never lost: the messages come again.
                logger.warning("%s", translate(error, "committing offsets"))
            return None
        return ()
