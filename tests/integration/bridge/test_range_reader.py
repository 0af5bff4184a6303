"""Reading ranges of offsets to their ends: behind open transactions, within a time, until a stop, without a right."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from reconsume.bridge.kafka.admin import Partition
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.delay_levels.wire.resend import DeadLetterInfo
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.integration.installation import Installation, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    return Installation(settings_for(bootstrap_servers))


@pytest.fixture
def reader(here: Installation) -> Iterator[RangeReader]:
    with RangeReader(here.settings.client_settings(), "ranges-under-test") as one:
        yield one


@pytest.fixture
def open_transaction(here: Installation) -> Iterator[Producer]:
    """One that has begun and is aborted at the end."""
    producer = Producer(here.settings.client_settings() | {"transactional.id": here.unique("open")})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    producer.abort_transaction(30)
    producer.close()


@contextmanager
def traffic(here: Installation, topic: str, partition: int) -> Iterator[None]:
    """Produce a record every 0.1 s; fail if the block does not end within half a minute."""
    end = threading.Event()

    def produce() -> None:
        for _ in range(300):
            here.produce(topic, b"more", partition=partition)
            if end.wait(0.1):
                return
        raise AssertionError("all of it was needed")

    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        try:
            yield
        finally:
            end.set()
            producing.result()


def values(messages: Iterator[PolledRecord]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_of_each_partition_what_is_in_its_range_in_order(here: Installation, reader: RangeReader) -> None:
    topic = here.topic("two", 2)
    for partition in (0, 1):
        here.produce(topic, *(b"%d/%d" % (partition, number) for number in range(1_500)), partition=partition)
    read = values(reader.read({(topic, 0): (10, 1_300), (topic, 1): (1_499, 1_500)}))
    assert [one for one in read if one is not None and one.startswith(b"0")] == [b"0/%d" % n for n in range(10, 1_300)]
    assert b"1/1499" in read
    assert len(read) == 1_291
    assert reader.unread == {}
    assert values(reader.read({(topic, 0): (5, 5)})) == []
    for first, second in ((0, 1), (1, 0)):  # one of them is finished before the other, and is read again all the same
        assert len(values(reader.read({(topic, first): (0, 1), (topic, second): (0, 1_500)}))) == 1_501


def test_an_open_transaction_ends_the_time_and_what_is_unread_is_told(
    here: Installation, reader: RangeReader, open_transaction: Producer
) -> None:
    topic = here.topic("held", 2)
    here.produce(topic, b"before", partition=0)
    here.produce(topic, *(b"%d" % number for number in range(10)), partition=1)
    open_transaction.produce(topic, b"within", partition=0)
    assert open_transaction.flush(PATIENCE) == 0
    read = wait_until(lambda: values(reader.read({(topic, 0): (0, 2)}, within_seconds=1)), "a first record")
    assert read == [b"before"]
    assert reader.unread == {(topic, 0): 2}
    with (
        RangeReader(here.settings.client_settings(), "ranges-under-test", seconds=1) as impatient,
        pytest.raises(KafkaNotReachable, match="nothing came within 1 s"),
    ):
        values(impatient.read({(topic, 0): (0, 2)}))

    def unread() -> dict[Partition, int]:
        with (
            RangeReader(here.settings.client_settings(), "ranges-under-test", seconds=1) as impatient,
            pytest.raises(KafkaNotReachable, match="nothing came within 1 s"),
        ):
            values(impatient.read({(topic, 0): (0, 2), (topic, 1): (0, 1)}))
        return dict(impatient.unread)

    with traffic(here, topic, 1):
        wait_until(lambda: unread() == {(topic, 0): 2}, "a reader that was connected within its second")


def test_a_stop_ends_it(here: Installation, reader: RangeReader) -> None:
    topic, stop = here.topic("stopped", 2), threading.Event()
    here.produce(topic, b"one", partition=0)
    here.produce(topic, b"two", partition=1)
    stop.set()
    assert values(reader.read({(topic, 0): (0, 1), (topic, 1): (0, 1)}, stop=stop)) == []
    assert reader.unread == {(topic, 0): 1, (topic, 1): 1}


def test_a_partition_that_is_left_gives_no_more(here: Installation, reader: RangeReader) -> None:
    topic = here.topic("left", 2)
    for partition in (0, 1):
        here.produce(topic, *(b"%d" % number for number in range(100)), partition=partition)
    firsts = []
    for message in reader.read({(topic, 0): (3, 100), (topic, 1): (4, 100)}):
        firsts.append(message.value())
        reader.leave((topic, message.partition() or 0))
    assert sorted(one for one in firsts if one is not None) == [b"3", b"4"]


def test_a_partition_that_cannot_be_read_does_not_keep_the_others(here: Installation, reader: RangeReader) -> None:
    topic, missing = here.topic("there"), here.name("not-there")
    here.produce(topic, b"one")
    both = {(topic, 0): (0, 1), (missing, 0): (0, 1)}
    assert wait_until(lambda: values(reader.read(both, within_seconds=3)), "the record") == [b"one"]
    assert reader.unread == {(missing, 0): 1}


def test_records_with_large_headers_are_not_all_read_ahead(here: Installation) -> None:
    topic, count, queued = here.topic("headers"), 40_000, list[int]()
    ranges = {(topic, 0): (0, count)}
    here.produce(topic, *(None for _ in range(count)), headers=[("stacktrace", b"x" * 1_000)])

    def note(statistics: str) -> None:
        partitions = json.loads(statistics)["topics"].get(topic, {"partitions": {}})["partitions"]
        queued.extend(one["fetchq_cnt"] for one in partitions.values())

    base = here.settings.client_settings() | {"statistics.interval.ms": 100, "stats_cb": note}
    with RangeReader(base, "ranges-under-test") as reader:
        # A reader of dead letters is slower than a broker, so its queue grows to its limit.
        read = [DeadLetterInfo.of("group", Position(*one[:3]), one.headers).attempt for one in reader.records(ranges)]
    assert len(read) == count
    assert 0 < max(queued) < 10_000
