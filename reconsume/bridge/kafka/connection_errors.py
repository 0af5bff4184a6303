"""Explanations of connection errors: address, cause and way out."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaNotReachable

logger = SafeLogger(__name__)

_REPORT_EVERY_SECONDS: Final = 10.0
_KEEP_SECONDS: Final = 60.0
_OF_A_BROKER: Final = re.compile(r"(?:\w+://)?(?P<host>[^/\s]+:\d+)/(?P<id>bootstrap|\d+): (?P<text>.*)", re.DOTALL)
"""librdkafka's name of a broker; with a number it is an address that the cluster advertises."""
_STATE: Final = re.compile(r" \(after (?P<ms>\d+)ms in state (?P<state>\w+).*\)$")
"""librdkafka may add ", 5 identical error(s) suppressed" in these parentheses."""
_DISCONNECTED: Final = "Disconnected"
_SIZE: Final = re.compile(r"Invalid response size (\d+)")
_HTTP: Final = int.from_bytes(b"HTTP", "big")
_TLS_ALERT: Final = 0x1503
_SOON_MS: Final = 2_000
"""A listener that requires a login closes a connection without one at its first request."""
_WORKED_MS: Final = 10_000
"""A connection that was open for this time has answered requests, also on a busy machine."""
_LOGIN: Final = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
_FENCED: Final = "(_FENCED)"
_FAIL: Final = "FAIL"
"""The facility of librdkafka's log lines about failed connections."""
_ADDRESS: Final = "give another address with --bootstrap-servers or RECONSUME_BOOTSTRAP_SERVERS"
_DOCTOR: Final = "`reconsume doctor` examines the connection"


class Heard(NamedTuple):
    """An error of librdkafka and its time, in monotonic seconds."""

    code: int
    text: str
    at: float = 0.0


class Trouble(NamedTuple):
    """The reason for a missing connection.

    Attributes:
        what: the address and the cause.
        mend: the way out.
        is_certain: whether only other settings, or another user or certificate, help.
    """

    what: str
    mend: str
    is_certain: bool = False

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}"


class ConnectionErrors:
    """Collects librdkafka's connection errors of one client, as its `error_cb` and `logger`.

    librdkafka (2.16) reports a connection that a broker closes only as a log line, all other failures by `error_cb`,
    and both only while the client is polled and does not wait for metadata. So the client's log level is 6, and
    `PatientClient` waits in short turns. Errors are logged in reconsume's words, the same words at most every 10 s:
    librdkafka repeats itself 40 times a second.
    Tests: tests/unit/bridge/kafka/test_connection_errors.py, tests/integration/bridge/test_connection_errors.py.

    Remove when: librdkafka tells `error_cb` of closed connections, also while a call waits for metadata.

    Args:
        base: the client's settings; their `error_cb` replaces our log, their `log_level` lets lines through.
        client_id: the beginning of our log lines.
        level: the level of our log lines.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        client_id: str,
        *,
        level: int = logging.WARNING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base = base
        self._client_id = client_id
        self._told: Callable[[KafkaError], object] | None = base.get("error_cb")
        self._level = level
        self._clock = clock
        self._heard: dict[tuple[str, int], Heard] = {}
        self._are_all_down = False
        self._has_worked = False
        self._logged: dict[str, float] = {}

    def __call__(self, error: KafkaError) -> None:
        """Record an error, as librdkafka's `error_cb`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._are_all_down = True
        else:
            self._note(error.code(), error.str())
        if self._told is not None:
            self._told(error)
            return
        trouble = self.trouble()
        text, now = error.str() if trouble is None else str(trouble), self._clock()
        if now - self._logged.get(text, -_REPORT_EVERY_SECONDS) >= _REPORT_EVERY_SECONDS:
            self._logged = {one: at for one, at in self._logged.copy().items() if now - at < _REPORT_EVERY_SECONDS}
            self._logged[text] = now
            logger.log(self._level, "%s: %s", self._client_id, text)

    def log(self, level: int, message: str, *given: Any) -> None:
        """Record a line of librdkafka's log, as its `logger`."""
        text = message % given if given else message
        if text.startswith(_FAIL) and _DISCONNECTED in text:
            self._note(KafkaError._TRANSPORT, text.partition("]: ")[2])
        # Of a producer that another one has replaced, the failed call tells, and often it goes on with a new one.
        if (level >= logging.CRITICAL and _FENCED not in text) or "log_level" in self._base:
            logger.log(level, "%s", text)

    def answered(self) -> None:
        """Note that a broker has answered with these settings, and forget all errors."""
        self._has_worked = True
        self.forget()

    def forget(self) -> None:
        """Forget all errors."""
        self._heard.clear()
        self._are_all_down = False

    def trouble(self) -> Trouble | None:
        """Return why there is no connection; None without an error in the last minute."""
        since = self._clock() - _KEEP_SECONDS
        heard = [one for one in self._heard.copy().values() if one.at >= since]
        return explain_connection(heard, self._base, has_worked=self._has_worked) if heard else None

    @property
    def is_hopeless(self) -> bool:
        """Return whether all brokers are down for this client and waiting certainly does not help."""
        trouble = self.trouble()
        return self._are_all_down and trouble is not None and trouble.is_certain

    def silence(self, seconds: float, doing: str) -> KafkaNotReachable:
        """Return the error of a read that got nothing for this time."""
        return self.no_answer(KafkaError(KafkaError._TIMED_OUT, f"nothing came within {seconds:g} s"), doing)

    def no_answer(self, cause: KafkaError, doing: str) -> KafkaNotReachable:
        """Return the error of a request without an answer."""
        trouble = self.trouble()
        if trouble is None:
            servers = self._base.get("bootstrap.servers")
            return KafkaNotReachable(f"{doing}: no answer from Kafka at {servers}: {cause.str()}; {_DOCTOR}")
        kind = KafkaLoginFailed if trouble.is_certain else KafkaNotReachable
        return kind(f"{doing}: no connection to Kafka: {trouble}; {_DOCTOR}")

    def add_to(self, cause: KafkaError) -> KafkaError:
        """Return the error with the recorded connection error, if there is one."""
        trouble = self.trouble()
        return cause if trouble is None else KafkaError(cause.code(), f"{cause.str()}: {trouble}")

    def _note(self, code: int, text: str) -> None:
        broker, state = _OF_A_BROKER.match(text), _STATE.search(text)
        self._has_worked |= state is not None and state["state"] == "UP" and int(state["ms"]) >= _WORKED_MS
        self._heard[broker["host"] if broker else "", code] = Heard(code, text, self._clock())


def explain_connection(heard: Iterable[Heard], base: Mapping[str, Any], *, has_worked: bool = False) -> Trouble | None:
    """Explain librdkafka's errors and the way out; of several, the most specific.

    Args:
        heard: the errors.
        base: the client's settings.
        has_worked: whether the client had a connection with these settings, so that they are not the cause of a closed
            one. A proxy before a dead broker closes connections as a listener with TLS does.
    """
    found = [one for one in (_explain(one, base, has_worked=has_worked) for one in heard) if one is not None]
    return min(found, key=lambda one: one[0])[1] if found else None


def _explain(heard: Heard, base: Mapping[str, Any], *, has_worked: bool) -> tuple[int, Trouble] | None:
    """Return rank and explanation; None for an error that concerns no broker."""
    broker = _OF_A_BROKER.match(heard.text)
    address = broker["host"] if broker else str(base.get("bootstrap.servers"))
    text = broker["text"] if broker else heard.text
    state = _STATE.search(text)
    reason = text[: state.start()] if state else text
    protocol = str(base.get("security.protocol", "PLAINTEXT")).upper()
    if heard.code in _LOGIN:
        return 0, _login(address, reason, base, protocol)
    if heard.code == KafkaError._SSL or "SSL handshake failed" in reason:
        return 1, _tls(address, reason, protocol)
    if size := _SIZE.search(reason):
        return 2, _strange(address, int(size[1]), protocol)
    if broker is None:
        return None
    if reason.startswith(_DISCONNECTED):
        return 3, _closed(address, None if has_worked else state, protocol)
    is_given = broker["id"] == "bootstrap" or address in str(base.get("bootstrap.servers")).split(",")
    return (5, _unreachable(address, reason, heard.code)) if is_given else (4, nobody_at(address))


def _unreachable(address: str, reason: str, code: int) -> Trouble:
    host, _, port = address.rpartition(":")
    if code == KafkaError._RESOLVE:
        why = reason.rpartition(": ")[2]
        return Trouble(f"the name {host} is not known here ({why})", f"check it, or {_ADDRESS}")
    if "Connection refused" in reason:
        return Trouble(
            f"{address} refuses the connection: no program listens on that port",
            f"is Kafka running there? Try: nc -vz {host} {port}; or {_ADDRESS}",
        )
    return Trouble(f"no connection to {address}: {reason}", f"check the network between, or {_ADDRESS}")


def nobody_at(address: str) -> Trouble:
    """Report that the brokers advertise an address that does not answer."""
    host, _, port = address.rpartition(":")
    return Trouble(
        f"Kafka says that a broker is at {address}, and nobody answers there from here",
        "start that broker, set its advertised.listeners to an address that this machine can reach, or open the way to "
        f"it; try: nc -vz {host} {port}",
    )


def _login(address: str, reason: str, base: Mapping[str, Any], protocol: str) -> Trouble:
    user, mechanism = base.get("sasl.username"), base.get("sasl.mechanism", base.get("sasl.mechanisms"))
    if "Request not valid in current SASL state" in reason:
        other = "SSL" if protocol == "SASL_SSL" else "PLAINTEXT"
        return Trouble(
            f"the listener at {address} takes no login, and security.protocol is {protocol}",
            f"set security.protocol={other}, or use the port of the listener with a login",
            is_certain=True,
        )
    if "mechanism" in reason and "handshake failed" in reason:
        return Trouble(
            f"the broker at {address} does not accept sasl.mechanism {mechanism}: {reason}",
            "set sasl.mechanism to one that it supports",
            is_certain=True,
        )
    return Trouble(
        f"the broker at {address} does not accept user {user!r}: {reason}",
        f"set sasl.username and the password (RECONSUME_KAFKA_SASL_PASSWORD_FILE) of a user with {mechanism}; a "
        "process reads that file only when it starts",
        is_certain=True,
    )


def _tls(address: str, reason: str, protocol: str) -> Trouble:
    if "PLAINTEXT broker listener" in reason or "wrong version number" in reason:
        other = "SASL_PLAINTEXT" if protocol == "SASL_SSL" else "PLAINTEXT"
        return Trouble(
            f"the listener at {address} does not speak TLS, and security.protocol is {protocol}",
            f"set security.protocol={other}, or use the port of the listener with TLS",
        )
    return Trouble(
        f"no TLS connection to {address}: {reason}",
        "set ssl.ca.location to a file with the authority that signed the brokers' certificates, and use the host name "
        f"that they name; see them: openssl s_client -showcerts -connect {address}",
        is_certain="certificate" in reason,
    )


def _strange(address: str, size: int, protocol: str) -> Trouble:
    if size >> 16 == _TLS_ALERT:
        return _wants_tls(address, protocol)
    who = "an HTTP server or proxy answers" if size == _HTTP else "a program answers"
    return Trouble(f"{who} at {address}, not Kafka", f"check the port, or {_ADDRESS}")


def _closed(address: str, state: re.Match[str] | None, protocol: str) -> Trouble:
    if state is not None and state["state"] == "APIVERSION_QUERY" and not protocol.endswith("SSL"):
        return _wants_tls(address, protocol)
    if state is not None and state["state"] == "UP" and int(state["ms"]) < _SOON_MS and "SASL" not in protocol:
        other = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
        return Trouble(
            f"{address} closes the connection at the first request: its listener may want a login, and "
            f"security.protocol is {protocol}",
            f"set security.protocol={other} with sasl.mechanism, sasl.username and the password",
        )
    return Trouble(f"{address} has closed the connection", "is the broker stopping, or a proxy between without it?")


def _wants_tls(address: str, protocol: str) -> Trouble:
    other = "SASL_SSL" if protocol.startswith("SASL") else "SASL_SSL or SSL"
    return Trouble(
        f"{address} closes the connection at the first request: its listener may want TLS, and security.protocol is "
        f"{protocol}",
        f"set security.protocol={other}, or use the port of the listener without TLS",
    )
