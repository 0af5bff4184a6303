"""Producers that can do nothing any more: what confluent-kafka (2.16) makes of librdkafka's fatal errors.

It raises one in whichever call happens to run callbacks, and does not call `error_cb`. `Producer.flush` goes on with
the exception set, so the reports that follow may fail anywhere, or be lost, and a `SystemError` may be all that is
left; `poll` comes back at once. So records are waited for by `poll`.

Tests: tests/unit/bridge/librdkafka/test_fatal_errors.py, tests/integration/test_lasting_producer.py.

Remove when: confluent-kafka gives fatal errors to `error_cb`, and `flush` stops at an exception of a callback.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, KafkaException, Producer


def wait_for_reports(producer: Producer, seconds: float) -> int:
    """Wait until all records are acknowledged, or given up; gives how many are not. They linger, unlike in `flush`.

    Raises:
        KafkaException: the producer has a fatal error. The reports of its records come with the next call.
    """
    end = time.monotonic() + seconds
    while (left := len(producer)) and (remaining := end - time.monotonic()) > 0:
        producer.poll(remaining)
    return left


def fatal_error(error: KafkaException) -> str:
    """Return the producer's fatal error, if it has one.

    Raises:
        KafkaException: the error itself, where it is any other.
    """
    cause = error.args[0]
    if not cause.fatal():
        raise error
    return f"{cause.name()}: {cause.str()}"


def fatal_error_of(error: SystemError) -> KafkaException:
    """The fatal error that came while a callback ran, of which only a `SystemError` is left.

    A callback may even clear it; then its code is `_FATAL`.
    """
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    return KafkaException(KafkaError(KafkaError._FATAL, f"the producer has failed ({error})", fatal=True))
