"""The librdkafka settings of every client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconsume.bridge.kafka.connection_errors import ConnectionErrors

_INFO: Final = 6
"""Syslog level: librdkafka reports a connection closed by a broker only at this level."""


FLUSHED_LINGER_MS: Final = 50
"""`linger.ms` of a producer that a commit flushes after each batch, so it costs no time. A shorter value splits the
batch into several requests, and while one of a partition has no answer, librdkafka (2.16) spins over records whose
linger time is over."""


def client_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Return settings for any client; of librdkafka's own log lines, only `ConnectionErrors` gets all.

    Returning brokers are found within a second, as with Java's clients; librdkafka's default waits for up to 10 s.
    Automatic creation of topics is off: otherwise librdkafka's producers and admin clients would recreate a deleted
    topic of reconsume with `CreateTime`, also while they are idle.
    Tests: tests/integration/topics/test_deleted_topics.py, tests/integration/consumers/test_delay_producer.py.

    New topics and partitions are found within 10 s; librdkafka's own refresh takes 5 minutes, and meanwhile a producer
    refuses records for new partitions. One request asks for all topics that a client uses: 0.25 MB for 1,000 of them.
    """
    defaults = {
        "client.id": client_id,
        "log_level": _INFO,
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 10_000,
    }
    # librdkafka refuses a longest wait below the first one.
    if "reconnect.backoff.ms" not in base:
        defaults["reconnect.backoff.max.ms"] = 1_000
    heard = ConnectionErrors(base, client_id)
    return defaults | dict(base) | {"error_cb": heard, "logger": heard}


def consumer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Return settings for a consumer that commits explicitly and reads committed records only."""
    defaults = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": False,
        # Also for a start at the beginning: librdkafka falls back on this if that start fails for a moment.
        "auto.offset.reset": "earliest",
    }
    return defaults | client_settings(base, client_id)


def producer_settings(base: Mapping[str, Any], client_id: str) -> dict[str, Any]:
    """Return settings for an idempotent producer that partitions keys like a Java client.

    A record is retried until the brokers answer (`message.timeout.ms` 0): after a timeout it would be unknown whether
    the record was stored, and a second copy would be a duplicate.
    Test: tests/integration/consumers/test_push_consumer_broker_away.py.
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
    """Return settings for a transactional producer, whose transactional id is also its client id.

    The short retry back-off matters: the next transaction often begins while the last one is completing, and
    librdkafka's default then waits 100 ms. Shown by benchmarks/scheduler/lateness.py.
    """
    return producer_settings(base, transactional_id) | {
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        # librdkafka requires a record's timeout to be shorter than the transaction's.
        "message.timeout.ms": max(1_000, timeout_ms - 1_000),
        "linger.ms": FLUSHED_LINGER_MS,
        # This many records are sent while the rest of a large transaction is produced; a small one waits for its
        # flush. Shown by benchmarks/scheduler/throughput.py: 0.59-0.74 of a bare loop became 0.71-0.92.
        "batch.num.messages": 1_000,
        "retry.backoff.ms": 1,
        "retry.backoff.max.ms": 10,
    }


def compresses(base: Mapping[str, Any]) -> bool:
    """Return whether producers with these settings compress."""
    return any(base.get(name, "none") != "none" for name in ("compression.type", "compression.codec"))
