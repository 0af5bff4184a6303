"""The positions of scheduler workers: what hides them, what resets them, and a topic that is not there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.single_records import write_records
from reconsume.cli.commands.positions import reset, show
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.positions import StoredPosition, encode_position, position_key
from reconsume.operations.position_list import list_positions, parse_partition, reset_positions
from tests.integration.installation import Installation, scheduler, settings_for
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture
def here(bootstrap_servers: str) -> Installation:
    """Without a scheduler."""
    one = Installation(settings_for(bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


def lane(here: Installation) -> str:
    return here.settings.names.delay(1_000)


def send(here: Installation, *values: bytes) -> str:
    """Records for a group, which come to its retry topic."""
    group = here.name("g")
    here.produce(lane(here), *values, headers=[("REAL_TOPIC", f"%RETRY%{group}".encode())])
    return group


def arrived(here: Installation, group: str, *values: bytes) -> None:
    wait_until(lambda: {*values} <= {one.value for one in here.retries(group)}, f"{values} come")


def committed_and_stored(here: Installation) -> bool:
    """Whether the position of the lane is what is committed there."""
    committed = here.committed(here.settings.topic_prefix + "scheduler", lane(here))
    return committed in [one.offset for one in list_positions(here.cluster) if one.topic == lane(here)]


@contextmanager
def open_transaction(here: Installation) -> Iterator[None]:
    """Of another worker, in the POSITIONS topic; the brokers end it after five minutes."""
    producer = Producer(transactional_settings(here.settings.client_settings(), here.name("dead"), 300_000))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(here.settings.names.positions, b"{}", b"somewhere/0")
    assert producer.flush(PATIENCE) == 0
    try:
        yield
    finally:
        producer.abort_transaction(30)
        producer.close()


def test_an_open_transaction_of_another_worker_holds_up_no_take_over(here: Installation) -> None:
    with scheduler(here.settings):
        arrived(here, send(here, b"a"), b"a")
    names = here.settings.names
    with open_transaction(here), scheduler(here.settings):
        before = here.admin.end_offsets([(names.positions, 0)])
        group = send(here, b"b")
        arrived(here, group, b"a", b"b")
        assert here.admin.end_offsets([(names.positions, 0)]) == before, "it was hidden all the time"
    assert Counter(one.value for one in here.retries(group)) == {b"a": 1, b"b": 1}


def test_workers_begin_at_the_committed_offset_where_a_position_was_reset(
    here: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    with scheduler(here.settings):
        group = send(here, b"a", b"b", b"c")
        arrived(here, group, b"a", b"b", b"c")
        wait_until(lambda: committed_and_stored(here), "the position is stored")
        with pytest.raises(IllegalSetting, match=r"has 1 member; stop all scheduler workers first"):
            reset(Here(here.cluster, as_json=True), [f"{lane(here)}-0"], yes=True)
    with pytest.raises(IllegalSetting, match=r"no position of nowhere-1; `reconsume positions list`"):
        reset(Here(here.cluster, as_json=True), ["nowhere-1"], yes=True)
    move_back(here)
    with scheduler(here.settings):
        arrived(here, send(here, b"d"), b"d")
    assert Counter(one.value for one in here.retries(group)) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
    move_back(here)
    capsys.readouterr()
    reset(Here(here.cluster, as_json=True), [f"{lane(here)}-0"], yes=True)
    [done] = json.loads(capsys.readouterr().out)
    assert (done["topic"], done["partition"], done["counts"]) == (lane(here), 0, True)
    assert done["worker"] == f"{here.settings.topic_prefix}scheduler-{here.settings.scheduler.instance_id}"
    show(Here(here.cluster, as_json=False))
    assert lane(here) not in capsys.readouterr().out
    with scheduler(here.settings):
        wait_until(lambda: len(here.retries(group)) >= 8, "all come again")
    assert Counter(one.value for one in here.retries(group)) == {b"a": 2, b"b": 2, b"c": 2, b"d": 2}


def move_back(here: Installation) -> None:
    """As `kafka-consumer-groups.sh --reset-offsets` does."""
    group = here.settings.topic_prefix + "scheduler"
    wait_until(lambda: here.members(group) == 0, "the worker has left")
    consumer = Consumer(here.settings.client_settings() | {"group.id": group})
    consumer.commit(offsets=[TopicPartition(lane(here), 0, 0)], asynchronous=False)
    consumer.close()


def test_a_reset_counts_when_the_topic_got_more_partitions(here: Installation) -> None:
    names, topic_id = here.settings.names, here.admin.topic_ids([lane(here)])[lane(here)]
    value = encode_position(StoredPosition(7, "", topic_id, here.name("worker")))
    wheres = [(lane(here), number) for number in range(here.admin.partitions([lane(here)])[lane(here)])]
    write_records(here.cluster, names.positions, [(position_key(*where), value) for where in wheres])
    here.admin.add_partitions(names.positions, 3)
    assert [(one.topic, one.partition) for one in reset_positions(here.cluster, None)] == wheres
    assert list_positions(here.cluster) == []


def test_what_is_no_partition_is_refused_with_what_to_write(here: Installation) -> None:
    assert parse_partition("reconsume.DELAY.10s-3") == ("reconsume.DELAY.10s", 3)
    for text in ("reconsume.DELAY.10s", "-3", "topic-x"):
        with pytest.raises(IllegalSetting, match="write TOPIC-PARTITION"):
            parse_partition(text)
    for partitions, all_of_them in (([], False), (["topic-0"], True)):
        with pytest.raises(IllegalSetting, match="or pass --all"):
            reset(Here(here.cluster, as_json=True), partitions, all_of_them, yes=True)


def test_a_topic_that_is_missing_is_made(here: Installation) -> None:
    """By the worker: installations of earlier versions have none."""
    names, admin = here.settings.names, AdminClient(here.settings.client_settings())
    admin.delete_topics([names.positions])[names.positions].result(PATIENCE)
    wait_until(lambda: names.positions not in here.admin.topics(), "it is gone")
    with scheduler(here.settings):
        arrived(here, send(here, b"a"), b"a")
        wait_until(lambda: committed_and_stored(here), "the position is stored")
    assert here.admin.settings([names.positions])[names.positions]["cleanup.policy"] == "compact"


def test_a_worker_without_transactions_writes_positions_too(here: Installation) -> None:
    at_least_once = here.settings.scheduler.model_copy(update={"delivery": "at_least_once"})
    with scheduler(here.settings.model_copy(update={"scheduler": at_least_once})):
        arrived(here, send(here, b"a"), b"a")
        wait_until(lambda: committed_and_stored(here), "the position is stored")
