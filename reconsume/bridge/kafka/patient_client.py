"""An admin client that is asked patiently, and replaced where it gets no answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
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
"""A client may fail for long after these. librdkafka 2.16 repeats a fenced epoch until it reads its metadata again."""
_REQUEST_SECONDS: Final = 4.0
"""Less than a caller waits: a client that does not find its controller in this time is replaced, and asked again."""
_SHARES: Final = (0.125, 0.25, 0.625)
"""Of the time for a request: librdkafka tells nothing of its connections while it waits for metadata."""
_GRACE_SECONDS: Final = 2.0
"""An answer that librdkafka gives itself, because no broker did, may come a little late."""
_LOOK_SECONDS: Final = 0.1


def patiently(ask: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], T]:
    """Have a method of a `PatientClient` ask again while there is no answer, as long as its patience lasts."""

    @wraps(ask)
    def asked(self: C, /, *given: P.args, **more: P.kwargs) -> T:
        return self._patiently(lambda: ask(self, *given, **more))

    return asked


class AdminRequest(Generic[K]):
    """One request about several topics, partitions or groups; each has an answer of its own.

    It keeps its client: librdkafka (2.16) may lose the answers of one that is let go meanwhile, as when another thread
    replaces it, and their futures never end. Nor is any answer waited for much longer than was asked for.
    Tests: tests/unit/bridge/kafka/test_patient_client.py, tests/integration/test_admin_requests.py.
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
        """Iterate over the asked keys."""
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


class PatientClient:
    """Asks again while there is no answer. Safe to use from several threads.

    A login that fails is told at once the first time. Who asks again all the same waits as for a broker that is away: a
    process that lasts would fill its log, and ask the brokers without a pause.

    Guarantees: a client that got no answer is replaced before the next request, because librdkafka (2.16) may wait for
    its controller for minutes after its connections were reset. Test: tests/unit/bridge/kafka/test_admin.py.
    Remove when: librdkafka looks for the controller again within a request's time.

    Args:
        base: librdkafka's settings for any client.
        client_id: shown in the brokers' logs.
        patience: seconds after which nothing is asked again; less for those who have other work to do.
    """

    def __init__(
        self, base: Mapping[str, Any], client_id: str = "reconsume-admin", *, patience: float = _TIMEOUT
    ) -> None:
        self._patience = patience
        self._request_seconds = min(_REQUEST_SECONDS, patience)
        # Nobody asks this client for news of the cluster but itself; librdkafka's 5 minutes are too long to wait.
        self._settings = {"topic.metadata.refresh.interval.ms": 10_000} | client_settings(base, client_id)
        # What is wrong with the connection is told by what is raised.
        self._heard = ConnectionErrors(base, client_id, level=logging.DEBUG)
        self._settings |= {"error_cb": self._heard, "logger": self._heard}
        self._client = make_admin(self._settings)
        self._has_told = False

    @patiently
    def _metadata(self, doing: str) -> ClusterMetadata:
        return self._ask_for_metadata(doing)

    def _ask_for_metadata(self, doing: str) -> ClusterMetadata:
        for share in _SHARES:
            try:
                return self._client.list_topics(timeout=share * self._request_seconds)
            except KafkaException as error:
                failed = error
            if self._is_hopeless():
                break
        raise self._explain(failed, doing) from failed

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while there is no answer, or a partition or group has no leader yet, as long as patience lasts."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                found = ask()
            except KafkaNotReachable as error:
                is_news = isinstance(error, KafkaLoginFailed) and not self._has_told
                if is_news or time.monotonic() > deadline:
                    self._has_told |= is_news
                    raise
            else:
                self._heard.forget()
                self._has_told = False
                return found
            time.sleep(_PAUSE)

    def _request(
        self, ask: Callable[..., Mapping[K, Future[Any]]], *given: Any, seconds: float | None = None, **more: Any
    ) -> AdminRequest[K]:
        patience = self._request_seconds if seconds is None else seconds
        return AdminRequest(ask, *given, seconds=patience, is_hopeless=self._is_hopeless, **more)

    def _is_hopeless(self) -> bool:
        """Hear what librdkafka tells of the connections."""
        self._client.poll(0)
        return self._heard.is_hopeless and not self._has_told

    def _answer(self, request: AdminRequest[K], asked: K, doing: str) -> Any:
        try:
            return request.answer(asked)
        except KafkaException as error:
            raise self._explain(error, doing) from error

    def _explain(self, error: KafkaException, doing: str) -> ReconsumeError:
        """Translate the error. Where a new client may be answered at once, the next request goes to one."""
        code, told = error.args[0].code(), translate(error, doing)
        if code in UNANSWERED:
            self._client.poll(0)
            told = self._heard.no_answer(error.args[0], doing)
            self._heard.forget()
        if code in _USED_UP:
            self._client = make_admin(self._settings)
        return told
