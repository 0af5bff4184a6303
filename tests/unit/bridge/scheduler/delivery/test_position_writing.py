"""Positions that cannot be written: no record of a batch is to blame, and a worker that may not write them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.delivery.positions import PositionLog
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, TransactionalWriter
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.writing.transactions import Undone
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused
from reconsume.delay_levels.wire.names import TopicNames
from tests.support.batches import batch_of

NAMES = TopicNames()
BASE = {"bootstrap.servers": "127.0.0.1:1"}
LANE = NAMES.delay(1_000)
REFUSAL = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Refusing:
    """Transactions in which one topic refuses its records."""

    def __init__(self, topic: str, error: KafkaError) -> None:
        self.topic, self.error = topic, error
        self.produced: list[tuple[Any, ...]] = []

    def register(self, _seconds: float) -> None: ...

    def start(self) -> None:
        """As `Trials` of the worker."""

    def produce(self, topic: str, *record: Any, on_delivery: Callable[..., None] | None, **_: Any) -> None:
        self.produced.append((topic, *record))
        if topic == self.topic and on_delivery is not None:
            on_delivery(self.error, Message(topic=topic))

    def try_out(self, produce: Callable[[Any], None]) -> None:
        produce(self)
        raise Undone(self.error)

    def write(self, produce: Callable[[Any], None], *_: Any, **_more: Any) -> None:
        self.try_out(produce)


def writer(refusing: Refusing) -> TransactionalWriter:
    log = PositionLog(BASE, NAMES.positions, "reconsume.scheduler-one")
    log._ids[LANE] = "id-1"
    made = TransactionalWriter(BASE, "reconsume.scheduler-one", 10_000, positions=log)
    made._transactions = made._trials = cast("Any", refusing)
    return made


def write(one: TransactionalWriter, records: int) -> None:
    batch = [Delivery("retry", 0, None, b"v", [], "delivered", "g")] * records
    commits = {(LANE, 3): Commit(7, "done"), ("no id", 0): Commit(1, "")}
    one.write(batch_of(batch, commits), cast("Any", _Member()))


class _Member:
    @staticmethod
    def group_metadata() -> bytes:
        return b""


@pytest.mark.parametrize("records", [1, 5])
def test_a_position_that_is_refused_blames_no_record(records: int) -> None:
    refusing = Refusing(NAMES.positions, REFUSAL)
    with pytest.raises(BatchAborted, match=r"writing positions: .*no right") as aborted:
        write(writer(refusing), records)
    assert aborted.value.passing
    value = b'{"offset":7,"metadata":"done","topicId":"id-1","transactionalId":"reconsume.scheduler-one"}'
    assert refusing.produced[records:] == [(NAMES.positions, value, f"{LANE}/3", 0)]


def test_a_record_that_is_refused_is_to_blame_all_the_same() -> None:
    with pytest.raises(BatchAborted) as aborted:
        write(writer(Refusing("retry", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))), 1)
    assert not aborted.value.passing


@pytest.mark.parametrize(
    ("error", "raised"), [(REFUSAL, KafkaRefused), (KafkaError(KafkaError._TIMED_OUT), KafkaNotReachable)]
)
def test_a_worker_tries_a_position_before_it_begins(error: KafkaError, raised: type[Exception]) -> None:
    with pytest.raises(raised, match="writing positions"):
        writer(Refusing(NAMES.positions, error)).start()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_worker_whose_positions_topic_is_gone_starts_afresh(*, is_there: bool) -> None:
    """The next life makes it."""
    service, given_up = SchedulerService(Settings()), list[str]()
    topics = {LANE: 1} | ({NAMES.positions: 1} if is_there else {})
    found = {"topics": lambda _: topics, "partitions": lambda _, asked: {one: 1 for one in asked if one in topics}}
    service._admin = cast("Any", type("Admin", (), found)())
    service._at_work = cast("Any", type("Worker", (), {"give_up": lambda _, why: given_up.append(why)})())
    service._see_topics()
    assert given_up == ([] if is_there else ["topic reconsume.POSITIONS is gone"])
