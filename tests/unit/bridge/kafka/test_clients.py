"""Clients are made in one place, or users' tests would need a broker all the same."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.kafka.clients import close_producer, make_admin, make_consumer, make_producer
from reconsume.delay_levels.errors import IllegalSetting
from tests.support.source import modules

CLIENTS = {"AdminClient", "Consumer", "Producer"}
STEPS = {
    *("init_transactions", "begin_transaction", "send_offsets_to_transaction"),
    *("commit_transaction", "abort_transaction"),
}
OF_TRANSACTIONS = {
    Path("bridge/writing/transactions.py"),
    Path("bridge/librdkafka/transactional_calls.py"),
    Path("bridge/kafka/errors.py"),
}
"""Of the last one `why_failed` is a part of a step."""
THEIR_OWN = {"cli", "testing"}
"""Of these one runs brokers and the programs of faults and demos, the other is a Kafka in memory."""
ALLOWED = {Path("bridge/kafka/clients.py"), Path("bridge/librdkafka/offsets_of_groups.py")}
"""The second is the program of a child process, which begins without the rest of the package."""


def made(tree: ast.Module) -> Iterator[int]:
    """The lines in which a client of confluent-kafka is made or derived from."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka")
        for alias in node.names
        if alias.name in CLIENTS
    }
    for node in ast.walk(tree):
        uses = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
        for one in uses:
            if isinstance(one, ast.Name) and one.id in names:
                yield one.lineno


def test_no_module_makes_a_client_by_itself() -> None:
    found = {
        f"{path}:{line}"
        for path, tree in modules().items()
        if path.parts[0] not in THEIR_OWN and path not in ALLOWED
        for line in made(tree)
    }
    assert found == set(), "use make_consumer, make_producer, make_admin, DerivedConsumer"


def test_no_module_makes_a_step_of_a_transaction_by_itself() -> None:
    """A step may never be answered by librdkafka; `Transactions` waits for it in a thread that can be left behind."""
    found = {
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        if path.parts[0] != "testing" and path not in OF_TRANSACTIONS
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in STEPS
    }
    assert found == set(), "use Transactions, or ExclusiveWriter"


def test_a_client_that_is_made_is_found() -> None:
    text = "from confluent_kafka import Consumer as C, TopicPartition\nTopicPartition('t')\nC({})\nclass D(C): ...\n"
    assert sorted(made(ast.parse(text))) == [3, 4]


@pytest.mark.parametrize("make", [make_admin, make_consumer, make_producer])
def test_a_setting_that_librdkafka_refuses_is_told_as_a_setting(make: Callable[[dict[str, str]], object]) -> None:
    settings = {"bootstrap.servers": "nowhere:1", "group.id": "g", "sasl.pasword": "secret"}
    with pytest.raises(
        IllegalSetting, match=r'setting kafka: .*No such configuration property: "sasl.pasword"'
    ) as told:
        make(settings)
    assert "secret" not in str(told.value)


def test_a_login_without_a_mechanism_says_what_to_set() -> None:
    with pytest.raises(IllegalSetting, match=r"set sasl\.mechanism, such as SCRAM-SHA-512"):
        make_admin({"bootstrap.servers": "nowhere:1", "security.protocol": "SASL_SSL"})


class Failing:
    """A producer that cannot be closed in peace."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        # As confluent-kafka 2.16 does it when the error comes while a callback runs, and when it came before.
        SystemError("<method 'close'> returned a result with an exception set"),
        KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "", fatal=True)),
    ],
    ids=["SystemError", "KafkaException"],
)
def test_a_producer_with_a_fatal_error_can_be_let_go(error: Exception) -> None:
    one = Failing(error)
    close_producer(one)  # type: ignore[arg-type]
    assert one.closed == 1


def test_any_other_error_of_closing_a_producer_is_told() -> None:
    with pytest.raises(KafkaException):
        close_producer(Failing(KafkaException(KafkaError(KafkaError._TIMED_OUT))))  # type: ignore[arg-type]
