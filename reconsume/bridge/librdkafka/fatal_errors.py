"""Fatal errors of producers in confluent-kafka (2.16).

confluent-kafka raises a fatal error in any call that runs callbacks, and does not call `error_cb`. `Producer.flush`
continues with the exception set, so later delivery reports may fail anywhere or be lost, and only a `SystemError` may
remain; `poll` returns at once. So code waits for records with `poll`.

Tests: tests/unit/bridge/librdkafka/test_fatal_errors.py, tests/integration/bridge/test_lasting_producer.py.

Remove when: confluent-kafka gives fatal errors to `error_cb`, and `flush` stops at an exception of a callback.
"""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

_POLL_SECONDS: Final = 0.05
"""Another thread may take the last report, and `poll` does not return for that."""


def wait_for_reports(producer: Producer, seconds: float) -> int:
    """Wait until all records are acknowledged or given up; return how many are not. Unlike `flush`, records linger.

    The number includes events that wait for the next `poll`, such as a refused connection.

    Raises:
        KafkaException: the producer has a fatal error. The reports of its records arrive with the next call.
    """
    end = time.monotonic() + seconds
    while (left := len(producer)) and (remaining := end - time.monotonic()) > 0:
        producer.poll(min(remaining, _POLL_SECONDS))
    return left


def fatal_error(error: KafkaException) -> str:
    """Return the producer's fatal error, if it has one.

    Raises:
        KafkaException: the error itself, if it is not fatal.
    """
    cause = error.args[0]
    if not cause.fatal():
        raise error
    return f"{cause.name()}: {cause.str()}"


def fatal_error_of(error: SystemError) -> KafkaException:
    """Return the fatal error that was raised during a callback, of which only a `SystemError` is left.

    If a callback has cleared it, the code is `_FATAL`.
    """
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    return KafkaException(KafkaError(KafkaError._FATAL, f"the producer has failed ({error})", fatal=True))
