"""Requests to a cluster that are answered later, in the futures of confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, Final, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException

__all__ = ["AdminRequest"]

K = TypeVar("K")

_GRACE_SECONDS: Final = 2.0
"""An answer that librdkafka gives itself, because no broker did, may come a little late."""
_LOOK_SECONDS: Final = 0.1


class AdminRequest(Generic[K]):
    """One request about several topics, partitions or groups; each has an answer of its own.

    It keeps its client: librdkafka (2.16) may lose the answers of one that is let go meanwhile, as when another thread
    replaces it, and their futures never end. Nor is any answer waited for much longer than was asked for.
    Tests: tests/unit/bridge/kafka/test_futures.py, tests/integration/test_admin_requests.py.
    Remove when: confluent-kafka ends the futures of a client that is destroyed.

    Args:
        ask: a method of the client.
        given: to that method.
        seconds: its `request_timeout`.
        is_hopeless: is asked while there is no answer; ends the wait.
        more: of its keywords.
    """

    def __init__(
        self,
        ask: Callable[..., Mapping[K, Future[Any]]],
        *given: Any,
        seconds: float,
        is_hopeless: Callable[[], bool] = lambda: False,
        **more: Any,
    ) -> None:
        self._ask = ask  # and so its client
        self._is_hopeless = is_hopeless
        self._end = time.monotonic() + seconds + _GRACE_SECONDS
        self._futures = ask(*given, request_timeout=seconds, **more)

    def __iter__(self) -> Iterator[K]:
        """What was asked for."""
        return iter(self._futures)

    def answer(self, asked: K) -> Any:
        """Wait for it.

        Raises:
            KafkaException: the answer is an error, or there is none.
        """
        while True:
            left = self._end - time.monotonic()
            try:
                return self._futures[asked].result(max(0.0, min(left, _LOOK_SECONDS)))
            except TimeoutError:
                if left <= _LOOK_SECONDS or self._is_hopeless():
                    error = KafkaError(KafkaError._TIMED_OUT, "librdkafka has not answered")
                    raise KafkaException(error) from None
