"""Steps of a transaction in which librdkafka (2.16) needs help.

Remove when it connects before it registers, and tells at once why a record was refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

__all__ = ["CONNECT_SECONDS", "commit", "connect"]

CONNECT_SECONDS: Final = 1.0
_SOME_TOPIC: Final = "__consumer_offsets"
"""To ask for all topics takes long where there are thousands."""
_LONGER_THAN_A_RECORD_SECONDS: Final = 15.0
"""Than any record waits for its answer; the whole transaction is bounded besides."""


def connect(producer: Producer) -> None:
    """Wait for the first answer of a broker.

    librdkafka 2.16 that is asked to register before it is connected looks for its coordinator only 500 ms later.
    """
    with suppress(KafkaException):
        producer.list_topics(_SOME_TOPIC, CONNECT_SECONDS)


def commit(producer: Producer, seconds: float) -> None:
    """A commit that got no answer in time is gone on with once: librdkafka may know more then.

    Where one record was refused the others stay unanswered until their own time is over; only then it says why.
    """
    try:
        producer.commit_transaction(seconds)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._TIMED_OUT:
            raise
        producer.commit_transaction(_LONGER_THAN_A_RECORD_SECONDS)
