"""Records whose headers have names that confluent-kafka cannot write: librdkafka itself produces them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_char_p, c_int, c_size_t, c_ssize_t, c_void_p
from typing import Final

from confluent_kafka import cimpl

__all__ = ["produce_raw"]

_PRODUCER: Final = 0
_END, _TOPIC, _VALUE, _KEY, _HEADERS = 0, 1, 4, 5, 10
"""rd_kafka_vtype_t: what the next arguments of `rd_kafka_producev` are."""
_TEN_SECONDS_MS: Final = 10_000


def produce_raw(
    bootstrap_servers: str, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    """Produce one record and wait until it is acknowledged."""
    # confluent-kafka's extension module is linked to the library, so its symbols are found through it.
    library = ctypes.CDLL(cimpl.__file__)
    for function in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, function).restype = c_void_p
    error = ctypes.create_string_buffer(512)
    conf = c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap_servers.encode(), error, c_size_t(512))
    producer = c_void_p(library.rd_kafka_new(c_int(_PRODUCER), conf, error, c_size_t(512)))
    assert producer.value is not None, error.value
    own = c_void_p(library.rd_kafka_headers_new(c_size_t(len(headers))))
    for name, text in headers:
        library.rd_kafka_header_add(own, c_char_p(name), c_ssize_t(len(name)), c_char_p(text), c_ssize_t(len(text)))
    refused = library.rd_kafka_producev(
        producer,
        *(c_int(_TOPIC), c_char_p(topic.encode())),
        *(c_int(_KEY), c_char_p(key), c_size_t(len(key))),
        *(c_int(_VALUE), c_char_p(value), c_size_t(len(value))),
        *(c_int(_HEADERS), own),
        c_int(_END),
    )
    assert refused == 0
    assert library.rd_kafka_flush(producer, c_int(_TEN_SECONDS_MS)) == 0
    library.rd_kafka_destroy(producer)
