"""The transactional writer by itself, and brokers that refuse one of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, TransactionalWriter
from reconsume.bridge.scheduler.targets.routing import Delivery
from tests.integration.installation import Installation, settings_for, wait_for_coordinator
from tests.support.batches import batch_of
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.kafka

LIMIT = 20_000


@pytest.fixture
def here(bootstrap_servers: str) -> Installation:
    return Installation(settings_for(bootstrap_servers))


@pytest.fixture
def consumer(here: Installation) -> Iterator[GroupConsumer]:
    """One whose group metadata a transaction takes; it reads nothing."""
    one = GroupConsumer(consumer_settings(here.settings.client_settings(), "moves") | {"group.id": here.name("moves")})
    wait_for_coordinator(one, here.topic("other"))
    yield one
    one.close()


def one_after_the_other(produce: Callable[[TransactionalWriter, Producer, Sequence[Delivery]], None]) -> Any:
    def produce_and_wait(writer: TransactionalWriter, producer: Producer, batch: Sequence[Delivery]) -> None:
        for one in batch:
            produce(writer, producer, [one])
            producer.flush(PATIENCE)

    return produce_and_wait


@pytest.mark.parametrize("slowly", [False, True], ids=["told by the commit", "told while it produces"])
@pytest.mark.parametrize("size", [LIMIT + 1, 1_500_000], ids=["in one request", "in a request of its own"])
@pytest.mark.parametrize("before", [0, 3], ids=["as the first", "after others"])
def test_after_a_refused_record_the_next_batch_is_written_at_once(
    here: Installation,
    consumer: GroupConsumer,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    size: int,
    *,
    slowly: bool,
) -> None:
    """However soon the brokers' answer comes: a call that is made meanwhile only hears that the transaction failed."""
    if slowly:
        monkeypatch.setattr(TransactionalWriter, "_produce", one_after_the_other(TransactionalWriter._produce))
    source, target = here.topic("source"), here.name("target")
    here.admin.create(target, 1, -1, {"max.message.bytes": str(LIMIT)})
    writer = TransactionalWriter(here.settings.client_settings(), here.name("writer"), 10_000)
    writer.start()
    moved = 0

    def write(*values: bytes) -> None:
        """Of several records all but the first come while it is written."""
        records = [Delivery(target, 0, None, value, [], "delivered", "g") for value in values]
        offsets = {(source, 0): Commit(moved + len(records), "")}
        writer.write(batch_of(records[:1], offsets, records[1:]), consumer)

    for number in range(before):
        write(b"before%d" % number)
        moved += 1
    with pytest.raises(BatchAborted, match="MSG_SIZE_TOO_LARGE") as aborted:
        write(b"a", b"x" * size, b"b")
    assert not aborted.value.passing
    for value in (b"a", b"b"):
        write(value)
        moved += 1
    writer.close()
    here.wait_for_marks(target)
    assert [record.value for record in here.read(target)] == [*(b"before%d" % n for n in range(before)), b"a", b"b"]
    assert here.committed(here.name("moves"), source) == moved
