"""Consumers without failures against bare loops of confluent-kafka: the same topic, one process each, in turn.

* The drop-in `Consumer`, and beside it the least that a Consumer of another class costs: one that overrides both
  methods and does nothing else.
* `PushConsumer` with a listener that does nothing, and beside it the least that calling a listener costs in Python: the
  bare loop with a call for each batch, without threads, timeouts, progress or anything else.
* `PushConsumer` with listeners of 10 ms: how many of its 20 threads are in one, on average.

A rate is that of the messages after the first ones, to the last; CPU is that of the process for a message. librdkafka's
pause of 1 s after a full queue is taken out for all: it would be what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.harness.registry import CPU, RATE, Place, Sample, measurement
from benchmarks.installation import Told, fill_ordinary, install, run_program
from reconsume.bridge.process.settings import Settings

RECORDS_WAITED_FOR: Final = 10_000

_LOOP: Final = """
import sys, time, uuid
kind, way, servers, prefix, topic, wanted = *sys.argv[1:6], int(sys.argv[6])
conf = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
if kind == "drop-in":
    from reconsume.consumers import Consumer
    consumer = Consumer(conf, topic_prefix=prefix)
else:
    from confluent_kafka import Consumer
    class Overriding(Consumer):
        _poll, _consume = Consumer.poll, Consumer.consume
        def poll(self, timeout=-1):
            return self._poll(timeout)
        def consume(self, num_messages=1, timeout=-1):
            return self._consume(num_messages, timeout)
    consumer = Overriding(conf) if kind == "overriding" else Consumer(conf)
consumer.subscribe([topic])
done = 0
while not (first := consumer.consume(1, 1)):
    pass
started, cpu = time.perf_counter(), time.process_time()
if way == "poll":
    while done < wanted:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            done += 1
else:
    while done < wanted:
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                done += 1
print(done / (time.perf_counter() - started), (time.process_time() - cpu) / done)
consumer.close()
"""
_BARE: Final = """
import sys, time, uuid
from confluent_kafka import Consumer
servers, prefix, topic, wanted = *sys.argv[1:4], int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "fetch.queue.backoff.ms": 1})
consumer.subscribe([topic])
while not consumer.consume(1, 1):
    pass
started, cpu, done = time.perf_counter(), time.process_time(), 1
while done < wanted:
    for message in consumer.consume(500, 0.1):
        if message.error() is None:
            done += 1
print((done - 1) / (time.perf_counter() - started), (time.process_time() - cpu) / (done - 1))
consumer.close()
"""
_CALLING: Final = _BARE.replace(
    "consumer = Consumer(",
    """
from threading import get_ident
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus
from reconsume.consumers.message import MessageQueue
queue, size, counts = MessageQueue(topic, 0), int(sys.argv[5]), {}
def on_messages(messages, context, success=ConsumeConcurrentlyStatus.CONSUME_SUCCESS):
    counts[get_ident()] = counts.get(get_ident(), 0) + len(messages)
    return success
consumer = Consumer(""",
).replace(
    """    for message in consumer.consume(500, 0.1):
        if message.error() is None:
            done += 1
""",
    """    read = consumer.consume(500, 0.1)
    for start in range(0, len(read), size):
        batch = tuple(read[start:start + size])
        if on_messages(batch, ConsumeConcurrentlyContext(queue)) is ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
            done += len(batch)
""",
)
_PUSH: Final = """
import sys, time, uuid
from threading import get_ident
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
servers, prefix, topic, wanted, batch = *sys.argv[1:4], *map(int, sys.argv[4:])
consumer = PushConsumer(uuid.uuid4().hex, bootstrap_servers=servers, topic_prefix=prefix,
                        conf={"auto.offset.reset": "earliest", "fetch.queue.backoff.ms": 1},
                        consume_message_batch_max_size=batch)
consumer.subscribe(topic)
counts = {}
@consumer.listener
def on_messages(messages, context, success=ConsumeConcurrentlyStatus.CONSUME_SUCCESS):
    counts[get_ident()] = counts.get(get_ident(), 0) + len(messages)
    return success
def done():
    return sum(list(counts.values()))
consumer.start()
while not (first := done()):
    time.sleep(0.001)
started, cpu = time.perf_counter(), time.process_time()
while (last := done()) < wanted:
    time.sleep(0.01)
print((last - first) / (time.perf_counter() - started), (time.process_time() - cpu) / (last - first))
consumer.shutdown()
"""
_WAITING: Final = (
    _PUSH.replace("counts = {}", "counts, spent = {}, {}")
    .replace(
        "    counts[",
        """    began = time.perf_counter()
    time.sleep(0.01)
    spent[get_ident()] = spent.get(get_ident(), 0) + time.perf_counter() - began
    counts[""",
    )
    .replace("started, cpu", "before = sum(list(spent.values()))\nstarted, cpu")
    .replace("print((last - first)", "print((sum(list(spent.values())) - before)")
)


@measurement("drop-in", rounds=5, quick_rounds=2)
def drop_in(place: Place) -> Iterator[Sample]:
    """The drop-in Consumer against confluent-kafka's, by `consume` and by `poll`."""
    settings, topic, records = _backlog(place)
    for way in ("consume", "poll"):
        run = partial(run_program, _LOOP)
        arguments = (way, place.bootstrap_servers, settings.topic_prefix, topic, str(records - 1_000))
        told = {kind: run(kind, *arguments) for kind in place.in_turn(("bare", "overriding", "drop-in"))}
        yield from _samples(way, "drop-in", told, {"bare": "the bare loop"})
        yield Sample(way, "overriding alone to the bare loop", RATE, told["overriding"].rate / told["bare"].rate)


@measurement("push-consumer", rounds=5, quick_rounds=3)
def push_consumer(place: Place) -> Iterator[Sample]:
    """PushConsumer against a loop that only calls the listener, and against one that does not call it."""
    settings, topic, records = _backlog(place)
    arguments = (place.bootstrap_servers, settings.topic_prefix, topic, str(records))
    for size in (32, 1):
        programs = {
            "bare": (_BARE, *arguments),
            "calling": (_CALLING, *arguments, str(size)),
            "PushConsumer": (_PUSH, *arguments, str(size)),
        }
        told = {kind: run_program(*programs[kind]) for kind in place.in_turn(programs)}
        case = f"batches of {size}" if size > 1 else "one by one"
        yield from _samples(case, "PushConsumer", told, {"calling": "the calling loop", "bare": "the bare loop"})
    waiting = run_program(_WAITING, *arguments[:3], str(RECORDS_WAITED_FOR), "1")
    yield Sample("listeners of 10 ms", "in flight, of 20", "listeners", waiting.rate)


def _backlog(place: Place) -> tuple[Settings, str, int]:
    records = place.size(1_000_000, 400_000)

    def make() -> tuple[Settings, str, int]:
        settings = install(place.bootstrap_servers)
        topic = f"{settings.topic_prefix}flights"
        fill_ordinary(settings, topic, records)
        return settings, topic, records

    return place.once("an ordinary backlog", make)


def _samples(case: str, name: str, told: dict[str, Told], others: dict[str, str]) -> Iterator[Sample]:
    for kind, called in others.items():
        yield Sample(case, f"rate to {called}", RATE, told[name].rate / told[kind].rate)
        yield Sample(case, f"CPU to {called}", CPU, told[name].cpu / told[kind].cpu)
    yield Sample(case, name, "messages/s", told[name].rate)
    yield Sample(case, f"{name}'s CPU", "s per million", told[name].cpu * 1e6)
