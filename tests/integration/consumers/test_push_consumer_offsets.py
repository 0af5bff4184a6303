"""PushConsumer on a real Kafka: what is committed when, and that nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition

from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


class Stuck(Deliveries):
    """Succeeds, but the first delivery of some bodies waits until it is let go, then gives its own status."""

    def __init__(self, late_results: dict[bytes, ConsumeConcurrentlyStatus]) -> None:
        super().__init__(self._decide)
        self.go = threading.Event()
        self._late_results = late_results

    def _decide(self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        late_result = self._late_results.get(messages[0].body or b"")
        if late_result is None or messages[0].reconsume_times:
            return SUCCESS
        assert self.go.wait(PATIENCE)
        return late_result


def bodies(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


@pytest.mark.rule("CC-13", "CC-14", "FC-09", "T-15", "T-24")
def test_a_stuck_message_holds_the_committed_offset_and_not_the_other_messages(here: Installation) -> None:
    group, topic = here.name("stuck"), here.topic("stuck")
    here.produce(topic, *bodies(10))
    listener = Stuck({b"4": SUCCESS})
    consumer = here.consumer(group, topic, listener, await_termination_when_shutdown=timedelta(0))
    with consumer:
        wait_until(lambda: len(listener.batches) == 10, "the others went on")
        wait_until(lambda: here.committed(group, topic) == 4, "all before the stuck one are committed")
    assert here.committed(group, topic) == 4, "a shutdown is no outcome"
    again = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, again):
        wait_until(lambda: here.committed(group, topic) == 10, "all is committed")
    listener.go.set()
    assert again.seen == [(b"4", 0)], "those after it are done, and the offset's metadata says so"


KILLED = """
import sys, threading
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
bootstrap_servers, prefix, group, topic = sys.argv[1:]
consumer = PushConsumer(group, bootstrap_servers=bootstrap_servers, topic_prefix=prefix,
    conf={"auto.offset.reset": "earliest", "session.timeout.ms": "6000", "heartbeat.interval.ms": "500"})
@consumer.subscribe(topic).listener
def listen(messages, context):
    if messages[0].body == b"4":
        threading.Event().wait()
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
consumer.run()
"""


@pytest.mark.rule("CC-13", "T-24")
def test_after_a_kill_the_message_that_was_not_finished_comes_again(here: Installation) -> None:
    group, topic = here.name("killed"), here.topic("killed")
    here.produce(topic, *bodies(10))
    settings = here.settings
    arguments = [settings.bootstrap_servers, settings.topic_prefix, group, topic]
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments]) as process:
        try:
            wait_until(lambda: here.kept(group, topic).done == set(range(5, 10)), "the others are done")
        finally:
            os.kill(process.pid, signal.SIGKILL)
    again = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, again):
        wait_until(lambda: here.committed(group, topic) == 10, "all is committed")
    assert again.seen == [(b"4", 0)], "a crash repeats only what was unfinished"


@pytest.mark.rule("FC-03")
def test_a_stuck_message_stops_its_partition_at_2000_offsets_and_no_other(here: Installation) -> None:
    group, topic = here.name("span"), here.topic("span", 2)
    here.produce(topic, b"stuck", *bodies(6_000), partition=0)
    listener = Stuck({b"stuck": SUCCESS})
    with here.consumer(group, topic, listener):
        wait_until(lambda: here.finished(group, topic) >= 2_000, "the partition goes on behind the stuck message")
        for number in range(5):
            # Each is read after its predecessor was, so the loop has turned often since the limit was reached.
            body = b"beside %d" % number
            here.produce(topic, body, partition=1)
            wait_until(lambda: (body, 0) in listener.seen, "the other partition goes on")  # noqa: B023
        assert len(listener.seen) - 5 <= 2_000 + 501, "at most one more read after the limit"
        assert here.committed(group, topic) == 0
        listener.go.set()
        wait_until(lambda: here.committed(group, topic) == 6_001, "all is consumed")


def test_messages_of_a_paused_partition_are_not_lost_with_their_records(here: Installation) -> None:
    group, topic = here.name("gone"), here.topic("gone")
    here.produce(topic, b"stuck", *bodies(6_000))
    listener, admin = Stuck({b"stuck": LATER}), here.admin._client
    with here.consumer(group, topic, listener, consume_concurrently_max_span=100):
        wait_until(lambda: here.finished(group, topic) >= 100, "the partition is paused behind the stuck message")
        admin.delete_records([TopicPartition(topic, 0, 5_000)])[TopicPartition(topic, 0)].result()
        listener.go.set()
        wait_until(lambda: here.committed(group, topic) == 6_001, "the kept records are consumed")
        wait_until(lambda: (b"stuck", 1) in listener.seen, "the stuck message was sent back")
    seen = {body for body, _ in listener.seen}
    assert seen >= set(bodies(6_000)[5_000:])
    assert len(seen) < 5_000, "most records were gone before they were read"


@pytest.mark.rule("EX-04", "EX-05", "CC-17", "SB-13", "T-27", "T-30")
def test_a_message_that_timed_out_is_sent_back_once_and_its_late_result_is_ignored(here: Installation) -> None:
    group, topic = here.name("slow"), here.topic("slow")
    here.produce(topic, b"late success", b"late failure", b"quick")
    listener = Stuck({b"late success": SUCCESS, b"late failure": LATER})
    with here.consumer(group, topic, listener, consume_timeout=timedelta(seconds=3)):
        wait_until(lambda: len(listener.batches) == 5, "two came again while their listeners still run")
        wait_until(lambda: here.committed(group, topic) == 3, "they are committed: their copies are acknowledged")
        listener.go.set()
    expected = [(b"late failure", 0), (b"late failure", 1), (b"late success", 0), (b"late success", 1), (b"quick", 0)]
    assert sorted((body or b"", times) for body, times in listener.seen) == expected
    sent_back = {(record.value, record["RECONSUME_TIME"], record["DELAY"]) for record in here.waiting(1_000, group)}
    assert sent_back == {(b"late success", "1", "3"), (b"late failure", "1", "3")}
    assert len(here.waiting(1_000, group)) == 2


@pytest.mark.rule("TN-06", "TN-08", "T-34", "T-35")
def test_with_latest_the_topic_starts_at_its_end_and_the_retry_topic_at_its_beginning(here: Installation) -> None:
    group, topic = here.name("latest"), here.topic("latest")
    here.produce(topic, b"old")
    sent_back = {"REAL_TOPIC": f"%RETRY%{group}", "RETRY_TOPIC": topic, "ORIGIN_MESSAGE_ID": f"{topic}/0/0"}
    headers = [(name, text.encode()) for name, text in sent_back.items()]
    here.produce(here.settings.names.send_back, b"retry", headers=headers)
    wait_until(lambda: here.retries(group), "a retry that is older than the group")
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, listener, conf={"auto.offset.reset": "latest"}):
        wait_until(lambda: (b"retry", 1) in listener.seen, "the old retry")

        def new_is_seen() -> bool:
            # Whether its start at the end is done cannot be seen from outside, so there is always one more.
            here.produce(topic, b"new")
            return (b"new", 0) in listener.seen

        wait_until(new_is_seen, "what is new")
    assert b"old" not in {body for body, _ in listener.seen}


def test_what_comes_between_two_owners_of_a_new_group_is_not_skipped(here: Installation) -> None:
    """The first owner starts at the end and consumes nothing; the second one does not look for a later end."""
    group, topic = here.name("handed-on"), here.topic("handed-on", 2)
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    latest = {"auto.offset.reset": "latest"}
    here.produce(topic, b"old", b"old", b"old", partition=0)
    with here.consumer(group, topic, listener, conf=latest):
        wait_until(lambda: here.all_committed(group).items() >= {((topic, 0), 3), ((topic, 1), 0)}, "its starts")
    for partition in range(2):
        here.produce(topic, b"between %d" % partition, partition=partition)
    with here.consumer(group, topic, listener, conf=latest):
        wait_until(lambda: len(listener.seen) == 2, "both")
    assert sorted(listener.seen, key=str) == [(b"between 0", 0), (b"between 1", 0)]


@pytest.mark.rule("FC-09", "CC-15")
def test_a_shutdown_waits_for_running_listeners_and_takes_their_results(here: Installation) -> None:
    group, topic = here.name("shutdown"), here.topic("shutdown")
    here.produce(topic, b"succeeds", b"fails")
    entered, go = threading.Barrier(3), threading.Event()

    def waits(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        entered.wait(PATIENCE)
        assert go.wait(PATIENCE)
        return SUCCESS if messages[0].body == b"succeeds" else LATER

    listener = Deliveries(waits)
    consumer = here.consumer(group, topic, listener, await_termination_when_shutdown=timedelta(seconds=30))
    consumer.start()
    entered.wait(PATIENCE)
    closer = threading.Thread(target=consumer.shutdown)
    closer.start()
    wait_until(consumer._stop.is_set, "the shutdown began")
    assert consumer.running, "it waits"
    go.set()
    closer.join(PATIENCE)
    assert here.committed(group, topic) == 2
    assert [record.value for record in here.waiting(1_000, group)] == [b"fails"]
    again = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, again):
        wait_until(lambda: again.seen, "the retry")
    assert again.seen == [(b"fails", 1)]


def test_what_is_finished_is_committed_before_a_shutdown_waits_for_the_rest(here: Installation) -> None:
    group, topic = here.name("commits-first"), here.topic("commits-first")
    here.produce(topic, b"stuck")
    listener = Stuck({b"stuck": SUCCESS})
    consumer = here.consumer(group, topic, listener, await_termination_when_shutdown=timedelta(seconds=60))
    consumer.start()
    wait_until(lambda: listener.batches, "the stuck one is begun")
    here.produce(topic, b"last")
    wait_until(lambda: len(listener.batches) == 2, "the last one is done")
    shutdown = threading.Thread(target=consumer.shutdown)
    shutdown.start()
    try:
        wait_until(lambda: here.kept(group, topic).done == {1}, "the last one is committed during the wait")
        assert shutdown.is_alive()
    finally:
        listener.go.set()
        shutdown.join()
    assert here.committed(group, topic) == 2


@pytest.mark.rule("CC-15", "T-29", "T-30", "TN-01")
def test_nothing_is_lost_when_a_second_member_joins_and_the_first_one_leaves_under_load(here: Installation) -> None:
    group, topic = here.name("rebalance"), here.topic("rebalance", 4)
    total = 2_000
    done: Counter[bytes | None] = Counter()
    lock = threading.Lock()

    def some_fail(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        if int(messages[0].body or b"0") % 7 == 0 and messages[0].reconsume_times == 0:
            return LATER
        with lock:
            done[messages[0].body] += 1
        return SUCCESS

    first, second = Deliveries(some_fail), Deliveries(some_fail)
    one, two = (here.consumer(group, topic, listener) for listener in (first, second))
    with one:
        here.produce(topic, *bodies(total)[: total // 2])
        wait_until(lambda: first.batches, "the first member works")
        with two:
            here.produce(topic, *bodies(total)[total // 2 :])

            def both_work() -> bool:
                here.produce(topic, b"1")
                return len(second.batches) > 0

            wait_until(both_work, "the second member works too")
            one.shutdown()
            wait_until(lambda: done.keys() >= set(bodies(total)), "every message has succeeded once")
            ends = here.admin.end_offsets([(topic, number) for number in range(4)])
            wait_until(
                lambda: all(here.committed(group, *where) == end for where, end in ends.items() if end),
                "all is committed",
            )
    assert first.batches
    assert second.batches


def test_a_listener_may_shut_its_own_consumer_down_and_its_result_counts(here: Installation) -> None:
    group, topic = here.name("inside"), here.topic("inside")
    here.produce(topic, *bodies(1))
    consumers: list[PushConsumer] = []

    def ends_it(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        consumers[0].shutdown()
        return SUCCESS

    consumers.append(here.consumer(group, topic, ends_it))
    consumers[0].start()
    wait_until(lambda: not consumers[0].running, "the consumer has ended")
    assert here.committed(group, topic) == 1
    consumers[0].shutdown()
