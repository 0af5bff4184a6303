"""Who cannot connect is told the address, the cause and the way out, by every part that asks Kafka something."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.bridge.reading.record_reader import read_again
from reconsume.bridge.writing.transactions import Transactions
from reconsume.consumers import DelayProducer
from reconsume.delay_levels.errors import KafkaLoginFailed, KafkaNotReachable
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.sidecar.process.kafka_watch import KafkaWatch
from tests.support.brokers.secure_kafka import SecureKafka, secure_kafka
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

FOR_EVER = 1_000.0
"""So long waits only who does not see that waiting does not help."""
Conf = dict[str, Any]


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka() as one:
        yield one


@pytest.fixture(scope="module")
def login(kafka: SecureKafka) -> Conf:
    """What the listener with TLS and login takes."""
    return {"bootstrap.servers": kafka.secure_bootstrap_servers} | kafka.user("me", "right")


def plain(kafka: SecureKafka) -> Conf:
    return {"bootstrap.servers": kafka.bootstrap_servers}


CERTAIN: dict[str, tuple[Callable[[SecureKafka, Conf], Conf], str]] = {
    "wrong password": (
        lambda _, login: login | {"sasl.password": "wrong"},
        r"{secure} does not accept user 'me'.*invalid credentials.*RECONSUME_KAFKA_SASL_PASSWORD_FILE",
    ),
    "wrong mechanism": (
        lambda _, login: login | {"sasl.mechanism": "PLAIN"},
        r"{secure} does not accept sasl.mechanism PLAIN.*SCRAM-SHA-512",
    ),
    "unknown authority": (
        lambda _, login: {name: value for name, value in login.items() if name != "ssl.ca.location"},
        r"no TLS connection to {secure}: .*certificate.*set ssl.ca.location",
    ),
    "login where none is taken": (
        lambda kafka, login: login | plain(kafka) | {"security.protocol": "SASL_PLAINTEXT"},
        r"{plain} takes no login.*set security.protocol=PLAINTEXT",
    ),
}
UNCERTAIN: dict[str, tuple[Callable[[SecureKafka, Conf], Conf], str]] = {
    "nobody listens": (lambda *_: {"bootstrap.servers": "127.0.0.1:1"}, r"127.0.0.1:1 refuses the connection"),
    "no such name": (lambda *_: {"bootstrap.servers": "nohost.invalid:9092"}, "the name nohost.invalid is not known"),
    "no TLS where it is wanted": (
        lambda _, login: {"bootstrap.servers": login["bootstrap.servers"]},
        r"{secure} closes the connection.*may want TLS, and security.protocol is PLAINTEXT.*=SASL_SSL or SSL",
    ),
    "no login where it is wanted": (
        lambda _, login: (
            {name: login[name] for name in ("bootstrap.servers", "ssl.ca.location")} | {"security.protocol": "SSL"}
        ),
        r"{secure} closes the connection.*may want a login, and security.protocol is SSL.*security.protocol=SASL_SSL",
    ),
    "TLS where there is none": (
        lambda kafka, login: {"ssl.ca.location": login["ssl.ca.location"], "security.protocol": "SSL"} | plain(kafka),
        r"{plain} does not speak TLS.*set security.protocol=PLAINTEXT",
    ),
}


def words(kafka: SecureKafka, text: str) -> str:
    return text.replace("{secure}", kafka.secure_bootstrap_servers).replace("{plain}", kafka.bootstrap_servers)


@pytest.mark.parametrize("ask", [KafkaAdmin.topics, lambda admin: admin.partitions(["t"])], ids=["list", "describe"])
@pytest.mark.parametrize("case", CERTAIN)
def test_what_waiting_does_not_mend_is_told_at_once(
    kafka: SecureKafka, login: Conf, case: str, ask: Callable[[KafkaAdmin], object]
) -> None:
    conf, said = CERTAIN[case]
    with pytest.raises(KafkaLoginFailed, match=words(kafka, said)):
        ask(KafkaAdmin(conf(kafka, login), patience=FOR_EVER))


@pytest.mark.parametrize("case", UNCERTAIN)
def test_what_may_pass_is_told_after_some_patience(kafka: SecureKafka, login: Conf, case: str) -> None:
    conf, said = UNCERTAIN[case]

    def told() -> KafkaNotReachable | None:
        with pytest.raises(KafkaNotReachable) as raised:
            KafkaAdmin(conf(kafka, login), patience=2).topics()
        return raised.value if re.search(words(kafka, said), str(raised.value)) else None

    error = wait_until(told, f"an error that says {said}; a busy machine may need more than 2 s to find the reason")
    assert not isinstance(error, KafkaLoginFailed)
    assert "`reconsume doctor`" in str(error)


def test_who_may_log_in_is_answered(login: Conf) -> None:
    assert KafkaAdmin(login).topics() == {}


def by_offsets(conf: Conf) -> None:
    KafkaAdmin(conf, patience=1).commits("g", [("t", 0)])


def by_a_span(conf: Conf) -> None:
    with RangeReader(conf, "reads", seconds=2) as reader:
        next(reader.read({("t", 0): (0, 1)}))


def by_its_place(conf: Conf) -> None:
    read_again(conf, Position("t", 0, 0), "g", "reads")


def by_a_transaction(conf: Conf) -> None:
    transactions = Transactions(transactional_settings(conf, "id", 10_000))
    try:
        transactions.register(2)
    except KafkaException as error:
        raise KafkaNotReachable(error.args[0].str()) from error
    finally:
        transactions.close()


def by_a_delayed_message(conf: Conf) -> None:
    servers = conf["bootstrap.servers"]
    more = {name: value for name, value in conf.items() if name != "bootstrap.servers"}
    with DelayProducer(bootstrap_servers=servers, conf=more) as producer:
        producer.send("t", b"x", delay_level=1)


def by_the_health_of_a_sidecar(conf: Conf) -> None:
    watch = KafkaWatch(conf, TopicNames())
    watch.ask_once()
    raise KafkaNotReachable(watch.checks()["kafka"])


@pytest.mark.parametrize(
    "ask",
    [by_offsets, by_a_span, by_its_place, by_a_transaction, by_a_delayed_message, by_the_health_of_a_sidecar],
    ids=lambda one: one.__name__,
)
def test_whoever_asks_is_told(kafka: SecureKafka, login: Conf, ask: Callable[[Conf], None]) -> None:
    said = f"{kafka.secure_bootstrap_servers} does not accept user 'me'"

    def is_told() -> bool:
        with pytest.raises(KafkaNotReachable) as raised:
            ask(login | {"sasl.password": "wrong"})
        return said in str(raised.value)

    wait_until(is_told, f"an error that says {said}; a busy machine may need more than a second to find the reason")


@pytest.mark.parametrize("command", ["topics plan", "status", "groups list", "dlq list g", "quarantine list"])
def test_a_command_ends_with_one_line(kafka: SecureKafka, login: Conf, command: str) -> None:
    options = [f"-X{name}={value}" for name, value in (login | {"sasl.password": "wrong"}).items() if "." in name]
    ran = subprocess.run(
        [sys.executable, "-m", "reconsume", *command.split(), *options[1:], "-b", kafka.secure_bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=os.environ,
    )
    assert ran.returncode == 2
    [line] = ran.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"{kafka.secure_bootstrap_servers} does not accept user 'me'" in line
    assert "RECONSUME_KAFKA_SASL_PASSWORD_FILE" in line
    assert Settings().bootstrap_servers not in line
