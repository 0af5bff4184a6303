"""Transactions that do not end: what is certain is said at once, what is not can be looked up, nobody hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.client_settings import consumer_settings, transactional_settings
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.librdkafka.transactional_calls import commit
from reconsume.bridge.writing import transactions as transactions_module
from reconsume.bridge.writing.transactions import SHUT_OUT, InDoubt, ShutOut, Transactions, Undone
from reconsume.delay_levels.progress.metadata import MAX_METADATA_BYTES
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

TRANSACTION_MS = 10_000
IMPATIENT_SECONDS: Final = 2.0
PATIENT_SECONDS: Final = 30.0
"""Where nothing hangs, a busy machine may take long."""


class Hanging(Producer):
    """As librdkafka hangs in a transaction after its coordinator went away: no timeout ends it."""

    hangs_in: str | None = None
    acts_first = False
    go_on = threading.Event()
    closed = 0

    def send_offsets_to_transaction(self, *given: Any) -> None:
        self._hang("offsets", lambda: super(Hanging, self).send_offsets_to_transaction(*given))

    def commit_transaction(self, *given: Any) -> None:
        self._hang("commit", lambda: super(Hanging, self).commit_transaction(*given))

    def init_transactions(self, *given: Any) -> None:
        self._hang("start", lambda: super(Hanging, self).init_transactions(*given))

    def _hang(self, where: str, act: Any) -> None:
        cls = type(self)
        if cls.hangs_in != where:
            act()
            return
        cls.hangs_in = None
        if cls.acts_first:
            act()
        assert cls.go_on.wait(PATIENCE)
        if not cls.acts_first:
            act()

    def close(self) -> bool:
        type(self).closed += 1
        return bool(super().close())


class Moving:
    """Writes records in transactions, each with an offset.

    Attributes:
        kind: the class of its producers.
        id: transactional.
    """

    def __init__(self, here: Installation, kind: type[Hanging]) -> None:
        self.kind, self.here, self.group = kind, here, here.name("moves")
        self.source, self.target = here.topic("source"), here.topic("target")
        conf = here.settings.client_settings()
        self.id = here.name("id")
        self.transactions = Transactions(transactional_settings(conf, self.id, TRANSACTION_MS))
        self.consumer = Consumer(consumer_settings(conf, "moves") | {"group.id": self.group})
        self.moved = 0

    def write(self, *values: bytes) -> None:
        def produce(producer: Producer) -> None:
            for value in values:
                producer.produce(self.target, value, partition=0)

        offsets = {(self.source, 0): Commit(self.moved + len(values), "")}
        self.transactions.write(produce, offsets, self.consumer.consumer_group_metadata())
        self.moved += len(values)

    @contextmanager
    def hanging(self, where: str, *, acts_first: bool = False) -> Iterator[None]:
        """The next such call hangs, and is soon given up."""
        self.kind.hangs_in, self.kind.acts_first = where, acts_first
        if where != "commit":  # which `_longest_ms` ends
            transactions_module.PATIENCE_SECONDS = IMPATIENT_SECONDS  # type: ignore[misc]
        yield
        transactions_module.PATIENCE_SECONDS = PATIENT_SECONDS  # type: ignore[misc]

    def stored(self) -> list[bytes | None]:
        self.here.wait_for_marks(self.target)
        return [record.value for record in self.here.read(self.target)]

    def committed(self) -> int | None:
        return self.here.committed(self.group, self.source)


@pytest.fixture
def moving(bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Moving]:
    class OfThisTest(Hanging):
        go_on = threading.Event()

    monkeypatch.setattr(transactions_module, "make_producer", lambda settings: OfThisTest(dict(settings)))
    monkeypatch.setattr(transactions_module, "PATIENCE_SECONDS", PATIENT_SECONDS)
    one = Moving(Installation(settings_for(bootstrap_servers)), OfThisTest)
    yield one
    OfThisTest.go_on.set()
    one.transactions.close()
    one.consumer.close()


def test_what_hangs_before_its_commit_is_undone_and_the_next_one_is_written_at_once(moving: Moving) -> None:
    kind = moving.kind
    moving.write(b"a")
    with moving.hanging("offsets"), pytest.raises(Undone, match="has not ended"):
        moving.write(b"b")
    assert moving.committed() == 1
    moving.write(b"c")
    assert (moving.stored(), moving.committed()) == ([b"a", b"c"], 2)
    kind.go_on.set()
    wait_until(lambda: kind.closed == 1, "the producer that hung is closed when it hangs no more")
    moving.write(b"d")
    assert moving.stored() == [b"a", b"c", b"d"]


@pytest.mark.parametrize("counts", [True, False], ids=["which counts", "which does not count"])
def test_a_commit_that_hangs_is_in_doubt_until_there_is_a_new_producer(moving: Moving, *, counts: bool) -> None:
    kind = moving.kind
    moving.write(b"a")
    moving.transactions._longest_ms = 6_000
    with moving.hanging("commit", acts_first=counts), pytest.raises(InDoubt, match="has not ended"):
        moving.write(b"b")
    moving.transactions.register(PATIENT_SECONDS)
    assert moving.committed() == (2 if counts else 1)
    # Nor does it count later: the brokers have shut its producer out.
    kind.go_on.set()
    wait_until(lambda: kind.closed == 1, "the producer that hung is closed when it hangs no more")
    assert moving.stored() == ([b"a", b"b"] if counts else [b"a"])
    moving.moved = 2 if counts else 1
    moving.write(b"c")
    assert moving.stored()[-1] == b"c"


def test_a_start_that_hangs_is_given_up_and_another_producer_starts(moving: Moving) -> None:
    kind = moving.kind
    kind.hangs_in = "start"
    with pytest.raises(KafkaException, match="registering the transactional id has not ended"):
        moving.transactions.register(0.5)
    moving.write(b"a")
    assert moving.stored() == [b"a"]


@pytest.mark.more
def test_offsets_of_hundreds_of_partitions_fit_with_the_longest_metadata(moving: Moving) -> None:
    """A coordinator stores those of one request as one batch, of 1 MiB at most."""
    here, metadata = moving.here, "m" * MAX_METADATA_BYTES
    many = here.topic("many", 300)
    partitions = [(many, number) for number in range(300)]
    member = GroupConsumer(consumer_settings(here.settings.client_settings(), "moves") | {"group.id": moving.group})

    def committed() -> set[object]:
        return set(member.committed(partitions, 30).values())

    points = dict.fromkeys(partitions, Commit(1, metadata))
    assert member.commit(points, wait=True) == set()
    assert committed() == {Commit(1, metadata)}
    points = dict.fromkeys(partitions, Commit(2, metadata))
    moving.transactions.write(lambda _producer: None, points, member.group_metadata())
    assert committed() == {Commit(2, metadata)}
    points = dict.fromkeys(partitions, Commit(3, metadata))
    member.restore(points)
    assert committed() == {Commit(3, metadata)}
    member.close()


def test_an_abort_that_fails_after_the_commit_was_asked_for_leaves_it_in_doubt(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the answer to a commit is lost: the brokers refuse to abort what they have committed."""

    def commits_unheard(producer: Producer, seconds: float) -> None:
        commit(producer, seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "planted"))

    monkeypatch.setattr(transactions_module, "commit", commits_unheard)
    with pytest.raises(InDoubt, match="planted"):
        moving.write(b"a")
    moving.transactions.register(PATIENT_SECONDS)
    assert (moving.stored(), moving.committed()) == ([b"a"], 1)


@pytest.mark.parametrize("heard", [True, False], ids=["reported", "not reported"])
def test_one_that_is_shut_out_while_it_tries_out_says_so(moving: Moving, *, heard: bool) -> None:
    """Whatever is called back: a report of the delivery, and what librdkafka logs, come with the fatal error."""
    other = Transactions(transactional_settings(moving.here.settings.client_settings(), moving.id, TRANSACTION_MS))
    reports: list[KafkaError | None] = []

    def report(error: KafkaError | None, message: Message) -> None:
        message.timestamp()
        reports.append(error)

    def produce(producer: Producer) -> None:
        other.register(30)
        producer.produce(moving.target, b"a", on_delivery=report if heard else None)

    with pytest.raises(ShutOut) as raised:
        moving.transactions.try_out(produce)
    assert raised.value.cause.code() in SHUT_OUT
    other.close()
    assert moving.stored() == []
