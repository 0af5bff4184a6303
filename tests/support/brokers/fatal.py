"""Fatal errors of real producers, which brokers in good order do not cause."""

from __future__ import annotations

import ctypes
from typing import Final

from confluent_kafka import KafkaError, Producer, cimpl

__all__ = ["fail_fatally"]

# Of librdkafka's public interface, meant for tests of programs; confluent-kafka has loaded the library.
_TEST_FATAL_ERROR: Final = ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error
_TEST_FATAL_ERROR.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]


def fail_fatally(producer: Producer) -> None:
    """Have librdkafka fail as it does when brokers have lost what they had acknowledged."""
    # The first thing that confluent-kafka keeps in its object is librdkafka's handle.
    handle = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)
    failed = _TEST_FATAL_ERROR(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"planted")
    assert failed == KafkaError.NO_ERROR
