"""Transactions of records that a person has chosen, by one writer of an id at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from confluent_kafka import KafkaException

from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.writing.transactions import (
    SHUT_OUT,
    START_SECONDS,
    InDoubt,
    Produce,
    ShutOut,
    Transactions,
    Undone,
)
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused

__all__ = ["TRANSACTION_SECONDS", "ExclusiveWriter"]

TRANSACTION_SECONDS: Final = 15.0
"""After that the brokers abort a transaction."""


class ExclusiveWriter:
    """Shuts out every other writer of the same id; use it as a context. No call of it waits without an end.

    Args:
        base: librdkafka's settings for any client.
        transactional_id: the same in all processes that do this work.
        doing: begins each error.
    """

    def __init__(self, base: Mapping[str, Any], transactional_id: str, doing: str) -> None:
        self._doing = doing
        settings = transactional_settings(base, transactional_id, int(TRANSACTION_SECONDS * 1_000))
        self._transactions = Transactions(settings)
        self._registration = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transactions.close()

    def take_over(self) -> None:
        """Shut out the others: what they have committed by now is all that they will.

        Raises:
            KafkaNotReachable: no answer.
            KafkaRefused: the right to the transactional id is missing.
        """
        try:
            self._transactions.register(START_SECONDS)
        except KafkaException as error:
            raise translate(error, f"{self._doing}: registering the transactional id") from error
        self._registration = self._transactions.registrations

    @property
    def is_alone(self) -> bool:
        """Whether no other writer can have committed anything since `take_over`.

        Guarantees: a slow transaction replaces the producer. Its new registration shuts out a writer that came in
        between, and that one may have committed before: take over again and read what was written. No test.
        """
        return self._registration == self._transactions.registrations

    def write(self, produce: Produce) -> None:
        """Commit records, all or none.

        Args:
            produce: hands them to the producer, in another thread; it may wait for reports.

        Raises:
            KafkaNotReachable: nothing was committed, or nobody knows; what was committed shows after `take_over`.
            KafkaRefused: rights are missing, or another writer has taken over; nothing was committed.
        """
        try:
            self._transactions.write(produce, seconds=TRANSACTION_SECONDS)
        except Undone as error:
            raise translate(error.cause, self._doing) from error
        except InDoubt as error:
            why = translate(error.cause, self._doing)
            raise KafkaNotReachable(
                f"{why}; whether the last records were sent is not known. Run it again: it leaves out what was sent"
            ) from error
        except ShutOut as error:
            if error.cause.code() not in SHUT_OUT:
                raise translate(error.cause, self._doing) from error
            raise KafkaRefused(
                f"{self._doing}: another process has begun to do the same, so this one stops. "
                "Run it again: it leaves out what was sent"
            ) from error
        except KafkaException as error:
            raise translate(error, f"{self._doing}: registering the transactional id") from error
