"""Steps of a transaction in which librdkafka (2.16) needs help.

Defects 1 and 2 are worked around here, 3 to 7 in `bridge/writing/transactions.py`:

1. A producer that registers its transactional id before it is connected looks for its coordinator 500 ms later.
   `connect` waits for the first answer of a broker. No test.
2. A commit with a refused record gets no answer in time. `commit` waits a second time.
3. Any call may be the one that reports a refused record: another call gets `_STATE`, a commit no answer in time, an
   abort `_CONFLICT`. The producer is asked for the reason, and the transaction counts as aborted.
4. A refused record leaves a gap in the sequence numbers, and brokers refuse the next transaction. A new producer
   continues; `bridge/scheduler/delivery/trials.py` tries twice.
5. A transaction whose first topic may not be written is ended although the brokers know of none, and their answer
   (`INVALID_TXN_STATE`) counts as fatal. The transaction is aborted, and the producer is replaced.
   Test: tests/integration/scheduler/test_refusals.py.
6. Only the epoch separates the transactions of a producer: see the first guarantee of `Transactions`.
7. A transaction that begins while the brokers complete the last one must wait (`CONCURRENT_TRANSACTIONS`).
   librdkafka asks again after `retry.backoff.ms` for the offsets of a group, but after 20 ms for the partitions of
   records. So the offsets go first there, and their answer shows that the last transaction is complete. Of transactions
   one right after the other 10 to 20 % met it, of those 3 ms later 1 %. Elsewhere the records go first, because both
   requests are then on their way together; and in a batch that grows, whose offsets are not known yet.
   Test: tests/unit/bridge/writing/test_order_of_requests.py.

Tests of 2 to 4: tests/integration/drop_in/test_exactly_once.py, tests/integration/scheduler/test_writers.py.

Remove when: librdkafka connects before it registers (1), tells at once why a record was refused (2, 3), numbers records
after a refusal without a gap (4), tells an empty transaction from a fatal error (5), implements KIP-890 (6), and
asks again for partitions as soon as for offsets (7).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)

CONNECT_SECONDS: Final = 1.0
COMPLETING_MS: Final = 2.0
"""How long brokers may need to complete a transaction after they have confirmed its commit."""
_SOME_TOPIC: Final = "__consumer_offsets"
"""A request for all topics takes long with thousands of topics."""
_LONGER_THAN_A_RECORD_SECONDS: Final = 15.0
"""Longer than any record waits for its answer; the whole transaction has its own limit."""


def connect(producer: Producer) -> None:
    """Wait for the first answer of a broker.

    librdkafka 2.16 that is asked to register before it is connected looks for its coordinator only 500 ms later.
    """
    with suppress(KafkaException):
        producer.list_topics(_SOME_TOPIC, CONNECT_SECONDS)


def commit(producer: Producer, seconds: float) -> None:
    """Commit; after a timeout wait once more, because librdkafka may know more then.

    If one record was refused, the others stay unanswered until their timeout; only then librdkafka reports the reason.
    """
    try:
        producer.commit_transaction(seconds)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        producer.commit_transaction(_LONGER_THAN_A_RECORD_SECONDS)


class ProducerLog:
    """The log lines of one producer. An abandoned producer is fenced, so its fatal error is not worth a warning.

    Args:
        told: the logger.

    Attributes:
        is_left: whether the producer is abandoned; its lines are then logged at debug level.
    """

    def __init__(self, told: Any) -> None:
        self._told = told
        self.is_left = False

    def log(self, level: int, *message: Any) -> None:
        """Log a line of librdkafka."""
        if self.is_left:
            logger.debug(*message)
        else:
            self._told.log(level, *message)
