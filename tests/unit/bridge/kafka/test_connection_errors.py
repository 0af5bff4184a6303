"""What librdkafka tells of connections, in words that name the address, the cause and the way out."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from confluent_kafka import KafkaError

from reconsume.bridge.kafka.connection_errors import ConnectionErrors, Heard, explain_connection
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaNotReachable

HERE = "127.0.0.1:9092"
LOGIN = {"sasl.username": "me", "sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"}
REFUSED = f"{HERE}/bootstrap: Connect to ipv4#{HERE} failed: Connection refused (after 0ms in state CONNECT)"
WRONG = (
    f"sasl_ssl://{HERE}/bootstrap: SASL authentication error: Authentication failed during authentication due to "
    "invalid credentials with SASL mechanism PLAIN (after 338ms in state AUTH_REQ)"
)
UNTRUSTED = (
    f"ssl://{HERE}/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
    "certificate could not be verified (after 25ms in state SSL_HANDSHAKE)"
)
PLAIN_LISTENER = (
    f"ssl://{HERE}/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
    "PLAINTEXT broker listener? (after 1ms in state SSL_HANDSHAKE)"
)
NO_LOGIN = (
    f"sasl_plaintext://{HERE}/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in current "
    "SASL state: broker's supported mechanisms:  (after 0ms in state AUTH_HANDSHAKE)"
)
MECHANISM = (
    f"sasl_ssl://{HERE}/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's "
    "supported mechanisms: SCRAM-SHA-512 (after 309ms in state AUTH_HANDSHAKE)"
)
UNKNOWN = (
    "nohost:9092/bootstrap: Failed to resolve 'nohost:9092': Name or service not known (after 3ms in state CONNECT)"
)
CLOSED = "Disconnected: connection closed by peer"


def size(first: bytes) -> str:
    number = int.from_bytes(first, "big")
    return f"{HERE}/bootstrap: Receive failed: Invalid response size {number} (0..100000000) (after 1ms in state UP)"


@pytest.mark.parametrize(
    ("code", "text", "conf", "what", "mend", "is_certain"),
    [
        (KafkaError._TRANSPORT, REFUSED, {}, f"{HERE} refuses", "nc -vz 127.0.0.1 9092; .*--bootstrap-servers", False),
        (KafkaError._RESOLVE, UNKNOWN, {}, "name nohost is not known here .Name or service not", "BOOTSTRAP", False),
        (
            KafkaError._AUTHENTICATION,
            WRONG,
            LOGIN,
            f"{HERE} does not accept user 'me'.*invalid",
            "_PASSWORD_FILE. of a user with PLAIN; a process reads that file only when it starts",
            True,
        ),
        (
            KafkaError._AUTHENTICATION,
            MECHANISM,
            LOGIN,
            "sasl.mechanism PLAIN.*SCRAM-SHA-512",
            "set sasl.mechanism",
            True,
        ),
        (
            KafkaError._AUTHENTICATION,
            NO_LOGIN,
            LOGIN | {"security.protocol": "SASL_PLAINTEXT"},
            f"{HERE} takes no login, and security.protocol is SASL_PLAINTEXT",
            "security.protocol=PLAINTEXT,",
            True,
        ),
        (
            KafkaError._SSL,
            UNTRUSTED,
            {"security.protocol": "SSL"},
            f"no TLS connection to {HERE}",
            "ssl.ca.location",
            True,
        ),
        (
            KafkaError._TRANSPORT,
            PLAIN_LISTENER,
            {"security.protocol": "sasl_ssl"},
            f"{HERE} does not speak TLS, and security.protocol is SASL_SSL",
            "security.protocol=SASL_PLAINTEXT",
            False,
        ),
        (
            KafkaError._TRANSPORT,
            f"{HERE}/bootstrap: {CLOSED} (after 2ms in state APIVERSION_QUERY)",
            {},
            f"{HERE} closes .* may want TLS, and security.protocol is PLAINTEXT",
            "security.protocol=SASL_SSL or SSL",
            False,
        ),
        (
            KafkaError._TRANSPORT,
            f"{HERE}/bootstrap: {CLOSED} (after 2ms in state APIVERSION_QUERY, 5 identical error(s) suppressed)",
            {},
            f"{HERE} closes .* may want TLS, and security.protocol is PLAINTEXT",
            "security.protocol=SASL_SSL or SSL",
            False,
        ),
        (
            KafkaError._TRANSPORT,
            f"ssl://{HERE}/bootstrap: {CLOSED} (after 25ms in state UP)",
            {"security.protocol": "SSL"},
            "may want a login, and security.protocol is SSL",
            "security.protocol=SASL_SSL with",
            False,
        ),
        (
            KafkaError._TRANSPORT,
            f"{HERE}/1: {CLOSED} (after 25000ms in state UP)",
            {},
            f"{HERE} has closed the connection$",
            "is the broker stopping",
            False,
        ),
        (KafkaError._BAD_MSG, size(b"HTTP"), {}, f"HTTP server or proxy answers at {HERE}", "check the port", False),
        (KafkaError._BAD_MSG, size(b"\x15\x03\x03\x00"), {}, "may want TLS", "SASL_SSL or SSL", False),
        (KafkaError._BAD_MSG, size(b"220 "), {}, f"a program answers at {HERE}, not Kafka", "check the port", False),
        (
            KafkaError._TRANSPORT,
            "kafka-0.internal:9092/1: Connect to ipv4#10.0.0.1:9092 failed: timed out (after 9ms in state CONNECT)",
            {},
            "a broker is at kafka-0.internal:9092, and nobody answers",
            "advertised.listeners",
            False,
        ),
        (KafkaError._TRANSPORT, REFUSED.replace("bootstrap", "1"), {}, f"{HERE} refuses", "running", False),
        (
            KafkaError._TRANSPORT,
            f"{HERE}/bootstrap: Connect to ipv4#{HERE} failed: No route to host (after 3ms in state CONNECT)",
            {},
            f"no connection to {HERE}: Connect to .*No route to host$",
            "check the network",
            False,
        ),
    ],
)
def test_a_cause_is_named_with_its_address_and_way_out(
    code: int, text: str, conf: dict[str, str], what: str, mend: str, is_certain: bool
) -> None:
    told = explain_connection([Heard(code, text)], {"bootstrap.servers": HERE} | conf)
    assert told is not None
    assert re.search(what, told.what)
    assert re.search(mend, told.mend)
    assert told.is_certain is is_certain


def test_of_several_causes_the_one_that_tells_most_is_named() -> None:
    heard = [Heard(KafkaError._TRANSPORT, REFUSED), Heard(KafkaError._AUTHENTICATION, WRONG)]
    for some in (heard, heard[::-1]):
        told = explain_connection(some, LOGIN)
        assert told is not None
        assert "does not accept user" in told.what
    assert explain_connection([Heard(KafkaError._TIMED_OUT, "Failed to get metadata")], {}) is None


class Listening:
    """What a client hears, and what it says."""

    def __init__(self, **conf: Any) -> None:
        self.now = 1_000.0
        self.errors = ConnectionErrors({"bootstrap.servers": HERE} | conf, "me", clock=lambda: self.now)

    def hear(self, code: int, text: str = "") -> None:
        self.errors(KafkaError(code, text))


def test_a_login_that_fails_is_hopeless_when_no_broker_is_left() -> None:
    one = Listening(**{"sasl.username": "me"})
    one.hear(KafkaError._AUTHENTICATION, WRONG)
    assert not one.errors.is_hopeless
    one.hear(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    assert one.errors.is_hopeless
    error = one.errors.no_answer(KafkaError(KafkaError._TRANSPORT), "listing the topics")
    assert isinstance(error, KafkaLoginFailed)
    assert str(error).startswith(
        f"listing the topics: no connection to Kafka: the broker at {HERE} does not accept user"
    )
    assert "reconsume doctor" in str(error)
    one.errors.forget()
    assert not one.errors.is_hopeless


def test_a_broker_that_is_down_is_waited_for() -> None:
    one = Listening()
    one.hear(KafkaError._TRANSPORT, REFUSED)
    one.hear(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    assert not one.errors.is_hopeless
    error = one.errors.no_answer(KafkaError(KafkaError._TIMED_OUT), "x")
    assert type(error) is KafkaNotReachable


def test_what_is_old_says_nothing_any_more() -> None:
    one = Listening()
    one.hear(KafkaError._TRANSPORT, REFUSED)
    one.now += 61
    assert one.errors.trouble() is None
    error = one.errors.no_answer(KafkaError(KafkaError._TIMED_OUT, "Timed out"), "x")
    assert str(error).startswith(f"x: no answer from Kafka at {HERE}: Timed out; `reconsume doctor`")


def test_a_connection_that_is_closed_is_told_by_a_log_line_alone(caplog: pytest.LogCaptureFixture) -> None:
    one = Listening()
    who = f"[rdkafka#producer-8] [thrd:{HERE}/bootstrap]: {HERE}/bootstrap"
    line = f"{who}: {CLOSED} (after 2ms in state APIVERSION_QUERY)"
    one.errors.log(logging.INFO, "%s %s", "FAIL", line)
    assert caplog.text == ""
    assert "may want TLS" in str(one.errors.trouble())
    one.hear(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    assert "me: 127.0.0.1:9092 closes the connection" in caplog.text


@pytest.mark.parametrize("worked", ["a long connection", "an answer"])
def test_a_proxy_before_a_dead_broker_is_no_listener_with_other_settings(worked: str) -> None:
    one = Listening()
    if worked == "an answer":
        one.errors.answered()
    else:
        one.errors.log(logging.INFO, f"FAIL [thrd:x]: {HERE}/1: {CLOSED} (after 25000ms in state UP)")
    one.errors.log(logging.INFO, f"FAIL [thrd:x]: {HERE}/1: {CLOSED} (after 2ms in state APIVERSION_QUERY)")
    assert str(one.errors.trouble()).startswith(f"{HERE} has closed the connection; is the broker stopping")


def test_the_log_says_each_cause_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    one = Listening()
    for _ in range(10):
        one.hear(KafkaError._TRANSPORT, REFUSED)
        one.hear(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
        one.now += 1.5
    assert len(caplog.messages) == 2
    assert set(caplog.messages) == {f"me: {one.errors.trouble()}"}


class Raced(dict[str, float]):
    """Another thread logs a line while this one looks at them."""

    def items(self) -> Any:
        for number, item in enumerate(super().items()):
            yield item
            self[f"line {number}"] = 0.0


def test_threads_that_poll_one_client_are_told_at_the_same_time() -> None:
    """An error in this callback would come out of the thread's own request."""
    one = Listening()
    one.errors._logged = Raced({"a line": 0.0, "another": 0.0})
    one.hear(KafkaError._TRANSPORT, REFUSED)
    assert len(one.errors._logged) == 1


def test_lines_of_librdkafka_are_logged_where_they_are_critical_or_wanted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        Listening().errors.log(logging.INFO, "a line")
        assert caplog.messages == []
        Listening().errors.log(logging.CRITICAL, "a fatal line")
        Listening().errors.log(logging.CRITICAL, "FATAL: Local: This instance has been fenced (_FENCED)")
        Listening(log_level=7).errors.log(logging.DEBUG, "a wanted line")
    assert caplog.messages == ["a fatal line", "a wanted line"]


def test_a_callback_of_the_user_is_told_in_place_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    told: list[KafkaError] = []
    one = Listening(error_cb=told.append)
    one.hear(KafkaError._TRANSPORT, REFUSED)
    assert [error.code() for error in told] == [KafkaError._TRANSPORT]
    assert caplog.messages == []
    assert "refuses the connection" in str(one.errors.trouble())
