"""The drop-in Consumer against confluent-kafka's own: the same topic, one process each, in turn.

Beside them the least that a Consumer of another class costs: one that overrides both methods and does nothing else.

The rate is that of the loop alone, from its first message to its last; beside it stands the CPU time of the process for
a message, which says more where others use the machine too. Pairs run in both orders, so that neither
always has the warmer page cache. librdkafka's pause of 1 s after a full queue is taken out for both: it would be all
that is measured.
"""

from __future__ import annotations

import statistics

from benchmarks.installation import fill_ordinary, install
from benchmarks.ratios import run_program

RECORDS = 1_000_000
PAIRS = 6

_LOOP = """
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


def measure_drop_in(bootstrap_servers: str) -> None:
    """Print the rates of both, and their ratio, for `consume` and `poll`."""
    settings = install(bootstrap_servers)
    topic = f"{settings.topic_prefix}flights"
    fill_ordinary(settings, topic, RECORDS)
    for way in ("consume", "poll"):
        ratios, least = [], []
        for pair in range(PAIRS):
            kinds = ("bare", "overriding", "drop-in") if pair % 2 else ("drop-in", "overriding", "bare")
            arguments = (bootstrap_servers, settings.topic_prefix, topic, str(RECORDS - 1_000))
            told = {kind: run_program(_LOOP, kind, way, *arguments) for kind in kinds}
            ratios.append(told["drop-in"].rate / told["bare"].rate)
            least.append(told["overriding"].rate / told["bare"].rate)
            print(f"{way}: " + ", ".join(f"{kind} {one}" for kind, one in told.items()) + f", ratio {ratios[-1]:.2f}")
        print(f"{way}: ratio min {min(ratios):.2f} median {statistics.median(ratios):.2f} max {max(ratios):.2f}")
        print(f"{way}: of overriding alone {min(least):.2f} median {statistics.median(least):.2f} max {max(least):.2f}")
