"""Read what stands between two offsets, once and to its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.clients import make_consumer
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import translate

__all__ = ["SpanReader"]

_TOGETHER: Final = 1_000
_READ_AHEAD_KIB: Final = 16_384


class SpanReader:
    """Records of one stretch of partitions after the other; one connection for all of them.

    Args:
        base: librdkafka's settings for any client.
        client_id: its name in the brokers' logs, and of the group that it asks under and never joins.
        uncommitted: also records of transactions that are open or were aborted.
        seconds: the longest time without a record.
    """

    def __init__(
        self, base: Mapping[str, Any], client_id: str, *, uncommitted: bool = False, seconds: float = 30.0
    ) -> None:
        self._seconds = seconds
        alone = {
            "group.id": client_id,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            # What is read ahead is thrown away at the end of a stretch.
            "queued.max.messages.kbytes": _READ_AHEAD_KIB,
            "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        }
        conf = consumer_settings(base, client_id) | alone
        self._heard: ConnectionErrors = conf["error_cb"]
        self._consumer = make_consumer(conf)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def read(self, spans: Mapping[Partition, tuple[int, int]]) -> Iterator[Message]:
        """The records from the first offset to before the second one, of each partition in order.

        Transactions that are open before the second one are waited for.

        Raises:
            KafkaNotReachable: nothing came in time.
            KafkaRefused: rights are missing.
        """
        unread = {where: end for where, (start, end) in spans.items() if start < end}
        try:
            self._consumer.assign([TopicPartition(*where, spans[where][0]) for where in unread])
            while unread:
                first = self._consumer.poll(self._seconds)
                if first is None:
                    silence = KafkaError(KafkaError._TIMED_OUT, f"nothing came within {self._seconds:.0f} s")
                    raise self._heard.no_answer(silence, f"reading {_names(unread)}")
                for message in (first, *self._consumer.consume(_TOGETHER, 0)):
                    if _take(message, unread):
                        yield message
        except KafkaException as error:
            raise translate(error, f"reading {_names(unread)}") from error


def _take(message: Message, unread: dict[Partition, int]) -> bool:
    """Whether it is a record that is wanted; a partition that is read is taken out of `unread`."""
    where, error = (message.topic() or "", message.partition() or 0), message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise translate(error, f"reading topic {where[0]}")
    if where not in unread:
        return False
    offset, end = message.offset() or 0, unread[where]
    # The end of what is committed may come before it: then more is told when the transaction that is open has ended.
    if offset + (error is None) >= end:
        del unread[where]
    return error is None and offset < end


def _names(partitions: Mapping[Partition, int]) -> str:
    return ", ".join(sorted({f"topic {topic}" for topic, _ in partitions}))
