"""The librdkafka settings of every client that we make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconsume.bridge.kafka.connection_errors import ConnectionErrors

__all__ = [
    "FLUSHED_LINGER_MS",
    "client_settings",
    "compresses",
    "consumer_settings",
    "producer_settings",
    "transactional_settings",
]

_INFO: Final = 6
"""Of syslog: a broker that closes a connection is logged so, and told in no other way."""


FLUSHED_LINGER_MS: Final = 50
"""Of a producer that is flushed when a batch is complete, as a commit does, so it costs no time. A shorter one splits
the batch into requests, and while one of a partition has no answer librdkafka (2.16) spins over records that linger no
more."""


def client_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for any client; of librdkafka's own lines the log has the critical ones, `ConnectionErrors` all.

    Brokers that are back are found within a second, as Java's clients do; librdkafka's default waits for up to 10 s.
    Topics of ours are not made by asking for them, which librdkafka's producers and admin clients would do with one
    that was deleted: brokers would make it with the clock of its producers (`CreateTime`). `DelayProducer`, which sends
    to the program's own topics, alone asks for that. Test: tests/integration/test_deleted_topics.py.
    """
    defaults = {"client.id": client_id, "log_level": _INFO, "allow.auto.create.topics": False}
    # librdkafka refuses a longest wait that is below the first one.
    if "reconnect.backoff.ms" not in base:
        defaults["reconnect.backoff.max.ms"] = 1_000
    heard = ConnectionErrors(base, client_id)
    return defaults | dict(base) | {"error_cb": heard, "logger": heard}


def consumer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for a consumer that commits by itself and sees committed records only.

    New topics are found within 10 s; librdkafka's own refresh takes 5 minutes.
    """
    defaults = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": 10_000,
        "enable.partition.eof": False,
        # Also for a start at the beginning: librdkafka falls back on this when that start fails for a moment.
        "auto.offset.reset": "earliest",
    }
    return defaults | client_settings(base, client_id)


def producer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Settings for an idempotent producer that puts keys where a Java client would.

    A record is retried until the brokers answer (`message.timeout.ms` 0): giving up after a time would leave open
    whether it was stored, and a second copy would be a duplicate.
    Test: tests/integration/test_push_consumer_broker_away.py.
    """
    defaults = {
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "message.timeout.ms": 0,
        "message.max.bytes": 100_000_000,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 500,
        "queue.buffering.max.messages": 200_000,
    }
    return defaults | client_settings(base, client_id)


def transactional_settings(base: Mapping[str, Any], transactional_id: str, timeout_ms: int) -> dict[str, Any]:
    """Settings for a transactional producer; its transactional id is its client id too.

    The short retry back-off matters: the next transaction meets the last one still completing, and librdkafka's
    default then waits 100 ms. Shown by benchmarks/lateness.py.
    """
    return producer_settings(base, transactional_id) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        # librdkafka wants a record's patience to be shorter than the transaction's.
        "message.timeout.ms": max(1_000, timeout_ms - 1_000),
        "linger.ms": FLUSHED_LINGER_MS,
        # So many records are sent while the rest of a large transaction is handed over; a small one waits for its
        # flush. Shown by benchmarks/throughput.py: 0.59-0.74 of a bare loop became 0.71-0.92.
        "batch.num.messages": 1_000,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
    }


def compresses(base: Mapping[str, Any]) -> bool:
    """Whether producers with these settings compress what they send."""
    return any(base.get(name, "none") != "none" for name in ("compression.type", "compression.codec"))
