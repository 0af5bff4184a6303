"""An admin client that repeats unanswered requests, and is replaced if it gets no answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from copy import copy
from functools import wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ClusterMetadata

from reconsume.bridge.kafka.client_settings import client_settings
from reconsume.bridge.kafka.clients import make_admin
from reconsume.bridge.kafka.connection_errors import ConnectionErrors
from reconsume.bridge.kafka.errors import translate
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaNotReachable, ReconsumeError

C = TypeVar("C", bound="PatientClient")
K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT: Final = 10.0
_PAUSE: Final = 0.05
UNANSWERED: Final = frozenset(
    {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
)
"""Errors of requests that no broker has answered."""
_USED_UP: Final = UNANSWERED | {KafkaError.FENCED_LEADER_EPOCH}
"""A client may fail for long after these: librdkafka 2.16 repeats a fenced epoch until its next metadata refresh."""
_REQUEST_SECONDS: Final = 4.0
"""Less than a caller's wait: a client that does not find its controller in this time is replaced."""
_SHARES: Final = (0.125, 0.25, 0.625)
"""Length of a turn: librdkafka reports no connection errors while it waits for metadata."""
_GRACE_SECONDS: Final = 2.0
"""Extra time, because librdkafka's own timeouts may be a little late."""
_LOOK_SECONDS: Final = 0.1


def patiently(ask: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Repeat a method of a `PatientClient` without an answer, as long as its patience lasts."""

    @wraps(ask)
    def asked(self: C, /, *given: P.args, **more: P.kwargs) -> T:
        return self._patiently(lambda: ask(self, *given, **more))

    return asked


class AdminRequest(Generic[K]):
    """One request about several topics, partitions or groups, each with its own answer.

    It keeps a reference to its client: if another thread replaces and releases the client, librdkafka (2.16) may lose
    the answers, and their futures never end. No answer is awaited for much longer than requested.
    Tests: tests/unit/bridge/kafka/test_patient_client.py, tests/integration/bridge/test_admin_requests.py.
    Remove when: confluent-kafka ends the futures of a client that is destroyed.

    Args:
        ask: the client's method.
        given: positional arguments of that method.
        seconds: the `request_timeout`.
        is_hopeless: called during the wait; True ends it.
        more: keyword arguments.
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
        """Iterate over the requested keys."""
        return iter(self._futures)

    def answer(self, asked: K) -> Any:
        """Wait for the answer of a key.

        Raises:
            KafkaException: the answer is an error or missing.
        """
        future = self._futures[asked]
        while True:
            left = self._end - time.monotonic()
            try:
                failed = future.exception(max(0.0, min(left, _LOOK_SECONDS)))
            except TimeoutError:
                if left <= _LOOK_SECONDS or self._is_hopeless():
                    error = KafkaError(KafkaError._TIMED_OUT, "librdkafka has not answered")
                    raise KafkaException(error) from None
            else:
                if failed is None:
                    return future.result()
                raise copy(failed)  # the future's own would keep this frame, and so the client, by its traceback


class PatientClient:
    """Repeats requests without an answer. Safe to use from several threads.

    The first failed login is reported at once. Further requests wait as for an unreachable broker; otherwise a
    long-running process would fill its log, and ask the brokers without a pause.

    Guarantees: a client without an answer is replaced before the next request, because librdkafka (2.16) may wait for
    its controller for minutes after connections were reset. Test: tests/unit/bridge/kafka/test_admin.py.
    Remove when: librdkafka looks for the controller again within a request's time.

    Args:
        base: librdkafka settings that every client uses.
        client_id: shown in the brokers' logs.
        patience: seconds after which a request is not repeated.
        stop: when set, requests end with `KafkaNotReachable` soon, so that a process can end while Kafka is away.

    Attributes:
        stop: as given.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        client_id: str = "reconsume-admin",
        *,
        patience: float = _TIMEOUT,
        stop: threading.Event | None = None,
    ) -> None:
        self.stop = threading.Event() if stop is None else stop
        self._patience = patience
        self._request_seconds = min(_REQUEST_SECONDS, patience)
        self._settings = client_settings(base, client_id)
        # The raised error explains the connection.
        self._heard = ConnectionErrors(base, client_id, level=logging.DEBUG)
        self._settings |= {"error_cb": self._heard, "logger": self._heard}
        self._client = make_admin(self._settings)
        self._has_told = False

    @patiently
    def _metadata(self, doing: str) -> ClusterMetadata:
        return self._ask_for_metadata(doing)

    @patiently
    def brokers(self) -> Collection[int]:
        """Return the ids of the running brokers, at least one."""
        brokers = self._ask_for_metadata("asking for the brokers").brokers
        if not brokers:
            raise KafkaNotReachable("asking for the brokers: the cluster has no running broker at the moment")
        return brokers

    def _ask_for_metadata(self, doing: str) -> ClusterMetadata:
        for share in _SHARES:
            try:
                return self._client.list_topics(timeout=share * self._request_seconds)
            except KafkaException as error:
                if share == _SHARES[-1] or self._is_hopeless():
                    raise self._explain(error, doing) from error
        raise AssertionError

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Repeat a request without an answer or leader, as long as patience lasts."""
        left = self._patience
        while True:
            began = time.monotonic()
            try:
                found = ask()
            except KafkaNotReachable as error:
                is_news = isinstance(error, KafkaLoginFailed) and not self._has_told
                # Nobody answers a process or machine that stands still, so that time does not count.
                left -= min(time.monotonic() - began, self._request_seconds) + _PAUSE
                if is_news or self.stop.is_set() or left < 0:
                    self._has_told |= is_news
                    raise
            else:
                self._heard.answered()
                self._has_told = False
                return found
            self.stop.wait(_PAUSE)

    def _request(
        self, ask: Callable[..., Mapping[K, Future[Any]]], *given: Any, seconds: float | None = None, **more: Any
    ) -> AdminRequest[K]:
        patience = self._request_seconds if seconds is None else seconds
        return AdminRequest(ask, *given, seconds=patience, is_hopeless=self._is_hopeless, **more)

    def _is_hopeless(self) -> bool:
        """Process librdkafka's connection errors; return whether waiting is useless."""
        self._client.poll(0)
        return self.stop.is_set() or (self._heard.is_hopeless and not self._has_told)

    def _answer(self, request: AdminRequest[K], asked: K, doing: str) -> Any:
        try:
            return request.answer(asked)
        except KafkaException as error:
            raise self._explain(error, doing) from error

    def _explain(self, error: KafkaException, doing: str) -> ReconsumeError:
        """Translate the error. If a new client may get an answer at once, the next request uses one."""
        code, told = error.args[0].code(), translate(error, doing)
        if code in UNANSWERED:
            self._client.poll(0)
            told = self._heard.no_answer(error.args[0], doing)
            self._heard.forget()
        if code in _USED_UP:
            self._client = make_admin(self._settings)
        return told
