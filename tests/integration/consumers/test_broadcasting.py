"""Broadcasting on a real Kafka: every member gets all messages, keeps its own offsets and never retries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    MessageModel,
    PushConsumer,
)
from reconsume.consumers.subscriptions import repeated_look
from reconsume.delay_levels.errors import OffsetStoreUnusable
from reconsume.delay_levels.progress.metadata import encode_progress
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more]

PROTOCOLS: list[dict[str, Any]] = [{}, {"group.protocol": "consumer"}]
each_protocol = pytest.mark.parametrize("protocol", PROTOCOLS, ids=["classic", "consumer"])


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(autouse=True)
def _looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """New topics are found within a second."""
    monkeypatch.setattr(repeated_look, "EVERY_SECONDS", 1.0)


def member(
    here: Installation, name: str, store: Path, listener: Any, conf: dict[str, Any] | None = None, **more: Any
) -> PushConsumer:
    """Not started; its client id is the name of the directory."""
    settings = {"client.id": store.name} | (conf or {})
    consumer = PushConsumer(
        here.name(name),
        bootstrap_servers=here.settings.bootstrap_servers,
        conf=settings,
        topic_prefix=here.settings.topic_prefix,
        message_model=MessageModel.BROADCASTING,
        offset_store=store,
        **{"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET} | more,
    )
    return consumer.subscribe(here.name(name)).register_message_listener(listener)


def saved(store: Path, topic: str) -> dict[str, Any]:
    """The partitions of the topic, as the file has them; none before there is a file."""
    found = list(store.rglob("offsets.json"))
    return dict(json.loads(found[0].read_text())["offsets"].get(topic, {})) if found else {}


def offsets(store: Path, topic: str) -> list[int]:
    return [one["offset"] for one in saved(store, topic).values()]


@pytest.mark.rule("BP-01", "BP-02", "TN-01", "T-31")
@each_protocol
def test_every_member_gets_all_messages_and_what_fails_is_dropped(
    here: Installation, tmp_path: Path, protocol: dict[str, Any]
) -> None:
    name = f"all-{len(protocol)}"
    topic = here.topic(name, 3)
    for number in range(12):
        here.produce(topic, str(number).encode(), key=str(number).encode())
    fails = Deliveries(lambda _messages, _context: LATER)
    works = Deliveries(lambda _messages, _context: SUCCESS)
    with (
        member(here, name, tmp_path / "a", fails, protocol) as failing,
        member(here, name, tmp_path / "b", works, protocol) as working,
    ):
        for store in (tmp_path / "a", tmp_path / "b"):
            wait_until(lambda store=store: sum(offsets(store, topic)) == 12, "all offsets are saved")  # type: ignore[misc]
        assert (failing.dropped, working.dropped) == (12, 0)
    everything = sorted((str(number).encode(), 0) for number in range(12))
    assert sorted(fails.seen) == sorted(works.seen) == everything
    assert here.admin.partitions([here.settings.names.retry(here.name(name))]) == {}, "nobody would read it"
    assert here.all_committed(here.name(name)) == {}
    assert here.waiting(1_000, here.name(name)) == []


@pytest.mark.rule("BP-02")
def test_a_member_goes_on_where_its_file_says_and_what_was_done_ahead_is_not_repeated(
    here: Installation, tmp_path: Path
) -> None:
    topic, store = here.topic("goes-on"), tmp_path / "a"
    here.produce(topic, *(str(number).encode() for number in range(6)))
    go = threading.Event()

    def stuck(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        assert messages[0].body != b"2" or go.wait(PATIENCE)
        return SUCCESS

    first = Deliveries(stuck)
    with member(here, "goes-on", store, first, await_termination_when_shutdown=timedelta(0)):
        done = {"offset": 2, "metadata": encode_progress(2, [3, 4, 5], {})}
        wait_until(lambda: saved(store, topic).get("0") == done, "what is done ahead is saved")
    here.produce(topic, b"new")
    second = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "goes-on", store, second):
        wait_until(lambda: offsets(store, topic) == [7], "all is saved")
    go.set()
    assert second.seen == [(b"2", 0), (b"new", 0)]


KILLED = """
import sys, threading
from reconsume.consumers import ConsumeConcurrentlyStatus, ConsumeFromWhere, MessageModel, PushConsumer
bootstrap_servers, prefix, group, topic, store = sys.argv[1:]
consumer = PushConsumer(group, bootstrap_servers=bootstrap_servers, topic_prefix=prefix, offset_store=store,
    message_model=MessageModel.BROADCASTING, conf={"client.id": "killed"},
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
@consumer.subscribe(topic).listener
def listen(messages, context):
    if messages[0].body == b"4":
        threading.Event().wait()
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
consumer.run()
"""


@pytest.mark.rule("BP-02")
def test_a_second_process_is_refused_and_after_a_kill_only_what_was_unfinished_comes_again(
    here: Installation, tmp_path: Path
) -> None:
    topic, store = here.topic("killed"), tmp_path / "killed"
    here.produce(topic, *(str(number).encode() for number in range(10)))
    settings = here.settings
    arguments = [settings.bootstrap_servers, settings.topic_prefix, here.name("killed"), topic, str(store)]
    again = Deliveries(lambda _messages, _context: SUCCESS)
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments]) as process:
        try:
            done = '{"offset": 4, "metadata": "done1:Pg=="}'
            wait_until(lambda: saved(store, topic).get("0") == json.loads(done), "all but one are done")
            with pytest.raises(
                OffsetStoreUnusable, match=r"another broadcasting consumer uses the offsets in .*client\.id"
            ):
                member(here, "killed", store, again).start()
        finally:
            os.kill(process.pid, signal.SIGKILL)
    with member(here, "killed", store, again):
        wait_until(lambda: offsets(store, topic) == [10], "all is saved")
    assert again.seen == [(b"4", 0)]


@pytest.mark.rule("BP-02")
def test_damaged_offsets_are_an_error_and_no_new_start(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("damaged"), tmp_path / "a"
    here.produce(topic, b"1")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "damaged", store, listener):
        wait_until(lambda: offsets(store, topic) == [1], "it is saved")
    [file] = store.rglob("offsets.json")
    file.write_text(file.read_text()[:-5])
    with pytest.raises(OffsetStoreUnusable, match=r"is damaged: .*; restore a good copy, or delete the file"):
        member(here, "damaged", store, listener).start()
    file.unlink()
    with member(here, "damaged", store, listener):
        wait_until(lambda: listener.seen == [(b"1", 0)] * 2, "it starts as a new one")


@pytest.mark.rule("BP-03", "OR-01")
def test_in_order_a_message_that_fails_is_given_again_in_its_place(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("orderly"), tmp_path / "a"
    here.produce(topic, b"1", b"2", b"3")
    seen: list[tuple[bytes | None, int]] = []

    def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = 10
        seen.append((messages[0].body, messages[0].reconsume_times))
        fails = messages[0].body == b"2" and messages[0].reconsume_times < 2
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if fails else ConsumeOrderlyStatus.SUCCESS

    consumer = member(here, "orderly", store, listener)
    consumer.register_message_listener(listener, orderly=True)
    with consumer:
        wait_until(lambda: offsets(store, topic) == [3], "all is saved")
        assert consumer.dropped == 0
    assert seen == [(b"1", 0), (b"2", 0), (b"2", 1), (b"2", 2), (b"3", 0)]


@pytest.mark.rule("BP-01", "BP-03")
def test_in_order_a_message_that_is_exhausted_is_dropped(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("exhausted"), tmp_path / "a"
    here.produce(topic, b"1", b"2")
    seen: list[tuple[bytes | None, int]] = []

    def listener(messages: Sequence[Message], context: ConsumeOrderlyContext) -> None:
        context.suspend_current_queue_time_millis = 10
        seen.append((messages[0].body, messages[0].reconsume_times))

    consumer = member(here, "exhausted", store, listener, max_reconsume_times=1)
    consumer.register_message_listener(listener, orderly=True)
    with consumer:
        wait_until(lambda: offsets(store, topic) == [2], "all is saved")
        assert consumer.dropped == 2
    assert seen == [(b"1", 0), (b"1", 1), (b"2", 0), (b"2", 1)]
    assert here.dead_letters(here.name("exhausted")) == []


@pytest.mark.rule("BP-02", "TN-06")
def test_a_start_at_the_end_is_kept_so_that_a_restart_misses_nothing(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("last"), tmp_path / "a"
    here.produce(topic, b"old")
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "last", store, listener, consume_from_where=last):
        assert offsets(store, topic) == [1], "its end"
    here.produce(topic, b"while it was away")
    with member(here, "last", store, listener, consume_from_where=last):
        wait_until(lambda: offsets(store, topic) == [2], "it is saved")
    assert listener.seen == [(b"while it was away", 0)]


@pytest.mark.rule("BP-02", "TN-07")
def test_a_start_by_timestamp_is_that_of_each_partition(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("moment", 3), tmp_path / "a"
    moment = int(time.time()) - 3_600
    with Producer(here.settings.client_settings()) as producer:
        for partition, body, at in ((0, b"before", -1), (0, b"then", 0), (0, b"after", 1), (1, b"older", -2)):
            producer.produce(topic, body, partition=partition, timestamp=(moment + at) * 1000)
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(
        *(here, "moment", store, listener),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        consume_timestamp=datetime.fromtimestamp(moment, UTC),
    ):
        wait_until(lambda: offsets(store, topic) == [3, 1, 0], "all is saved")
    assert sorted(listener.seen) == [(b"after", 0), (b"then", 0)]


@pytest.mark.rule("BP-02")
def test_a_topic_that_is_made_later_is_waited_for_and_read_from_its_beginning(
    here: Installation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "a"
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "later", store, listener, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
        later = here.name("later")
        assert f"topic {later} does not exist; create it (`kafka-topics.sh --create --topic {later}`)" in caplog.text
        here.produce(here.topic("later"), b"first")
        wait_until(lambda: listener.seen == [(b"first", 0)], "the first message")


@pytest.mark.rule("BP-02")
def test_new_partitions_and_topics_of_a_pattern_are_read_and_deleted_ones_left(
    here: Installation, tmp_path: Path
) -> None:
    topic, store = here.topic("grows"), tmp_path / "a"
    here.produce(topic, b"old")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consumer = member(here, "grows", store, listener, consume_from_where=last)
    consumer.subscribe("^" + here.name("grows") + "-.*")
    with consumer:
        admin = AdminClient(here.settings.client_settings())
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(PATIENCE)
        wait_until(lambda: here.admin.partitions([topic]) == {topic: 2}, "the partition is there")
        with Producer(here.settings.client_settings()) as producer:
            producer.produce(topic, b"new partition", partition=1)
        other = here.topic("grows-too")
        here.produce(other, b"new topic")
        wait_until(lambda: offsets(store, other) == [1], "the new topic is read")
        wait_until(lambda: offsets(store, topic) == [1, 1], "the new partition is read")
        admin.delete_topics([other])[other].result(PATIENCE)
        wait_until(lambda: not saved(store, other), "the deleted topic is forgotten")
        here.produce(topic, b"later")
        wait_until(lambda: len(listener.seen) == 3, "the others are read on")
        here.produce(other, b"made again")
        wait_until(lambda: offsets(store, other) == [1], "it is new")
    assert sorted(listener.seen) == [(b"later", 0), (b"made again", 0), (b"new partition", 0), (b"new topic", 0)]


@pytest.mark.rule("BP-02")
def test_an_offset_that_is_not_there_any_more_starts_where_a_new_one_would(here: Installation, tmp_path: Path) -> None:
    topic, store = here.topic("gone"), tmp_path / "a"
    here.produce(topic, b"1")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "gone", store, listener):
        wait_until(lambda: offsets(store, topic) == [1], "it is saved")
    [file] = store.rglob("offsets.json")
    file.write_text(file.read_text().replace('"offset": 1', '"offset": 99'))
    with member(here, "gone", store, listener):
        wait_until(lambda: listener.seen == [(b"1", 0)] * 2, "it starts at the beginning")
        wait_until(lambda: offsets(store, topic) == [1], "and saves that")


@pytest.mark.rule("BP-02")
def test_a_topic_that_is_made_again_while_a_member_runs_is_read_from_its_beginning(
    here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_look, "EVERY_SECONDS", 1.0)
    topic, store = here.topic("again"), tmp_path / "a"
    here.produce(topic, b"old", b"old", b"old")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with member(here, "again", store, listener):
        wait_until(lambda: offsets(store, topic) == [3], "the old topic is read")
        admin = AdminClient(here.settings.client_settings())
        admin.delete_topics([topic])[topic].result(PATIENCE)
        wait_until(lambda: not here.admin.partitions([topic]), "the topic is gone")
        here.admin.create(topic, 1, -1, {})
        here.produce(topic, *[b"%d" % number for number in range(5)])
        new = {(b"%d" % number, 0) for number in range(5)}
        wait_until(lambda: new <= set(listener.seen), "all of the new topic")
        wait_until(lambda: offsets(store, topic) == [5], "its offset is saved")
