"""Send-backs per second of a PushConsumer whose listener always fails, by its number of threads."""

from __future__ import annotations

import statistics

from benchmarks.installation import fill_ordinary, install
from benchmarks.ratios import run_program

RECORDS = 100_000
ROUNDS = 3
THREADS = (1, 4, 20)

_PUSH = """
import sys, time, uuid
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
servers, prefix, topic, wanted, threads = *sys.argv[1:4], *map(int, sys.argv[4:])
group = uuid.uuid4().hex
consumer = PushConsumer(group, bootstrap_servers=servers, topic_prefix=prefix, consume_thread_nums=threads,
                        conf={"auto.offset.reset": "earliest", "fetch.queue.backoff.ms": 1})
consumer.subscribe(topic)
@consumer.listener
def on_messages(messages, context):
    return ConsumeConcurrentlyStatus.RECONSUME_LATER
import logging
logging.disable(logging.CRITICAL)
admin, lane = KafkaAdmin({"bootstrap.servers": servers}), prefix + "DELAY.10s"
partitions = [(lane, number) for number in range(admin.partitions([lane])[lane])]
before = sum(admin.end_offsets(partitions).values())
def done():
    return sum(admin.end_offsets(partitions).values()) - before
consumer.start()
while not (first := done()):
    time.sleep(0.001)
started, cpu = time.perf_counter(), time.process_time()
while (last := done()) < wanted:
    time.sleep(0.02)
print((last - first) / (time.perf_counter() - started), (time.process_time() - cpu) / (last - first))
consumer.shutdown()
"""


def measure_send_backs(bootstrap_servers: str) -> None:
    """Print the rates, and what they are of the rate with one thread."""
    settings = install(bootstrap_servers, "1s 5s 10s 30s")
    topic = f"{settings.topic_prefix}flights"
    fill_ordinary(settings, topic, RECORDS)
    arguments = (bootstrap_servers, settings.topic_prefix, topic, str(RECORDS))
    rates: dict[int, list[float]] = {threads: [] for threads in THREADS}
    for turn in range(ROUNDS):
        for threads in THREADS if turn % 2 else THREADS[::-1]:
            told = run_program(_PUSH, *arguments, str(threads))
            rates[threads].append(told.rate)
            print(f"send-backs with {threads} threads: {told}", flush=True)
    for threads, found in rates.items():
        print(
            f"send-backs per second with {threads} threads: min {min(found):,.0f} median "
            f"{statistics.median(found):,.0f} max {max(found):,.0f}"
        )
