"""PushConsumer with a listener that does nothing against a bare `consume` loop: the same topic, one process each.

Beside them the least that calling a listener costs in Python: the same bare loop with a call for each batch, without
threads, timeouts, progress or anything else.

The rate is that of the messages after the first ones, to the last; beside it stands the CPU time of the process for a
message, which says more where others use the machine too. Pairs run in both orders, so that neither always has
the warmer page cache. librdkafka's pause of 1 s after a full queue is taken out for both.
"""

from __future__ import annotations

import statistics

from benchmarks.installation import fill_ordinary, install
from benchmarks.ratios import run_program

RECORDS = 1_000_000
PAIRS = 5

_BARE = """
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

_CALLING = _BARE.replace(
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

_PUSH = """
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


def measure_push_consumer(bootstrap_servers: str, batch_sizes: tuple[int, ...] = (32, 1)) -> None:
    """Print the rates of both, and their ratio."""
    settings = install(bootstrap_servers)
    topic = f"{settings.topic_prefix}flights"
    fill_ordinary(settings, topic, RECORDS)
    arguments = (bootstrap_servers, settings.topic_prefix, topic, str(RECORDS))
    for batch_size in batch_sizes:
        programs = {
            "bare": (_BARE, *arguments),
            "calling": (_CALLING, *arguments, str(batch_size)),
            "push": (_PUSH, *arguments, str(batch_size)),
        }
        ratios, least = [], []
        for pair in range(PAIRS):
            kinds = list(programs) if pair % 2 else list(programs)[::-1]
            told = {kind: run_program(*programs[kind]) for kind in kinds}
            ratios.append(told["push"].rate / told["bare"].rate)
            least.append(told["calling"].rate / told["bare"].rate)
            print(f"batches of {batch_size}: " + ", ".join(f"{kind} {one}" for kind, one in told.items()))
        print(f"ratio min {min(ratios):.3f} median {statistics.median(ratios):.3f} max {max(ratios):.3f}")
        print(f"of the calls alone {min(least):.3f} median {statistics.median(least):.3f} max {max(least):.3f}")
