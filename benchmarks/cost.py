"""What failed messages cost: topics, partitions, bytes, CPU and memory, of this project and of peers.

    python -m benchmarks.cost --failures 1000000 --value-bytes 1000

A model: its measured values come from `results.json`, its assumptions are the fields of `Workload` and `Assumed`.
`docs/cost.md` is made of it by `make docs`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Final, cast

from benchmarks.harness.results import Result, number, read_runs
from benchmarks.installation import PAYLOAD, waiting_headers
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import TopicSettings
from reconsume.bridge.topics.topics import TopicMaker, wanted_topics
from reconsume.delay_levels.wire.names import TopicNames

__all__ = [
    "PEERS",
    "Assumed",
    "Cost",
    "Measured",
    "Workload",
    "checks",
    "measured",
    "on_paper",
    "record_bytes",
    "table",
]

RECORDED: Final = Path(__file__).with_name("results.json")
GROUPS: Final = (1, 50, 200, 10_000)
MILLION: Final = 1_000_000
GIB: Final = 2**30
SECONDS_OF_A_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Workload:
    """The workload of failed messages.

    Attributes:
        failed_messages: messages that failed at least once.
        failures_each: how often such a message fails; each time it waits once.
        groups: consumer groups that have failures, of one topic each.
        value_bytes: of a message.
        replicas: of each partition.
        delays: different delays between the attempts, as in RocketMQ's table for retries.
    """

    failed_messages: int = MILLION
    failures_each: int = 3
    groups: int = 1
    value_bytes: int = 1_000
    replicas: int = 3
    delays: int = 16

    @property
    def waits(self) -> int:
        """Return how many records wait, one for each failure."""
        return self.failed_messages * self.failures_each


@dataclass(frozen=True, slots=True)
class Assumed:
    """Values that were not measured here.

    Attributes:
        records_of_a_batch: in the log, where producers are busy.
        records_of_a_transaction: of a worker; 9 were measured at 1,000 records per second, 73 at 10,000.
        bytes_of_a_transaction: markers, positions and offsets for each delay partition in it.
        rocketmq_fixed_bytes: of a message in a commit log, apart from body and properties.
        rocketmq_properties_bytes: of a message that was sent back.
        rocketmq_queue_bytes: of a message in a consume queue.
        consumer_mib: of a consumer of Kafka's Java client: its thread, its buffers of network and fetches.
        retry_bytes_in_memory: that a client in Java holds for a waiting record, apart from its value.
        share_locks: records that a share group can hold back in a partition (`group.share.partition.max.record.locks`).
        origin_partitions: of a group's topic.
    """

    records_of_a_batch: int = 100
    records_of_a_transaction: int = 9
    bytes_of_a_transaction: int = 480
    rocketmq_fixed_bytes: int = 91
    rocketmq_properties_bytes: int = 300
    rocketmq_queue_bytes: int = 20
    consumer_mib: float = 1.0
    retry_bytes_in_memory: int = 500
    share_locks: int = 2_000
    origin_partitions: int = 6


@dataclass(frozen=True, slots=True)
class Measured:
    """Values of `results.json`, of one group unless the name says 200; CPU in seconds per million records."""

    scheduler_cpu: float
    scheduler_cpu_200_groups: float
    send_back_cpu: float
    worker_mib: float
    worker_mib_200_groups: float
    records_per_second: float
    records_per_second_200_groups: float
    spring_cpu: float
    parallel_cpu: float
    share_cpu: float
    rocketmq_cpu: float


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that a product needs for a workload.

    Attributes:
        product: its name.
        topics: made for the retries.
        partitions: of those topics.
        log_bytes: written to all brokers together.
        cpu_seconds: of clients and workers; of the broker where it does the work.
        memory_mib: of the processes that let records wait, while all failed messages wait at once.
        processes: that `memory_mib` belongs to.
    """

    product: str
    topics: int
    partitions: int
    log_bytes: float
    cpu_seconds: float
    memory_mib: float
    processes: str


def record_bytes(key: int, value: int, headers: Sequence[tuple[str, str | bytes | None]]) -> int:
    """Return the size of a record in Kafka's log (format v2), without its share of the batch's head."""
    size = 1 + 2 + 2 + _prefixed(key) + _prefixed(value) + _varint(len(headers))
    for name, text in headers:
        size += _prefixed(len(name.encode())) + _prefixed(len(text.encode() if isinstance(text, str) else text or b""))
    return size + _varint(size)


def _prefixed(length: int) -> int:
    return _varint(length) + length


def _varint(number_of: int) -> int:
    """Return the bytes of a zigzag varint that is not negative."""
    return max(1, ((number_of << 1).bit_length() + 6) // 7)


def reconsume(load: Workload, know: Measured, assume: Assumed) -> Cost:
    """Return the cost here: delay topics are shared, a group adds its retry and its dead-letter topic."""
    shared = _shared_topics()
    record = _waiting_bytes(load.value_bytes) + _HEAD / assume.records_of_a_batch
    transaction = assume.bytes_of_a_transaction / assume.records_of_a_transaction
    growth = max(know.worker_mib_200_groups - know.worker_mib, 0.0) / 200
    # A worker's producer is replaced when it has seen 1,000 topics, so more groups take no more.
    worker = know.worker_mib + growth * min(load.groups, 1_000)
    more = (know.scheduler_cpu_200_groups - know.scheduler_cpu) * min((load.groups - 1) / 199, 1)
    return Cost(
        "reconsume",
        len(shared) + 2 * load.groups,
        sum(shared) + 2 * load.groups,
        load.waits * (2 * record + transaction) * load.replicas,
        load.waits / MILLION * (know.scheduler_cpu + more + know.send_back_cpu),
        2 * worker,
        "two workers",
    )


def rocketmq(load: Workload, know: Measured, assume: Assumed) -> Cost:
    """Return the cost of RocketMQ: a message is stored in the schedule topic, then in the retry topic."""
    message = (
        assume.rocketmq_fixed_bytes
        + assume.rocketmq_properties_bytes
        + load.value_bytes
        + len(_KEY)
        + assume.rocketmq_queue_bytes
    )
    queues = 18
    return Cost(
        "RocketMQ",
        1 + 2 * load.groups,
        queues + 2 * load.groups,
        load.waits * 2 * message * load.replicas,
        load.waits / MILLION * know.rocketmq_cpu,
        0,
        "in the broker",
    )


def spring(load: Workload, know: Measured, assume: Assumed) -> Cost:
    """Return the cost of Spring Kafka: a retry topic for each delay of each group, and a consumer for each."""
    topics = load.groups * (load.delays + 1)
    record = _waiting_bytes(load.value_bytes) + _HEAD  # it waits for each send, so each is a batch
    return Cost(
        "Spring Kafka retry topics",
        topics,
        topics,
        load.waits * record * load.replicas,
        load.waits / MILLION * know.spring_cpu,
        load.groups * (load.delays + 1) * assume.consumer_mib,
        f"{load.groups * (load.delays + 2):,} consumers",
    )


def parallel_consumer(load: Workload, know: Measured, assume: Assumed) -> Cost:
    """Return the cost of parallel-consumer: what waits is in the memory of the consumers."""
    waiting = load.failed_messages * (load.value_bytes + assume.retry_bytes_in_memory) / 2**20
    return Cost(
        "Confluent parallel-consumer",
        0,
        0,
        0,
        load.waits / MILLION * know.parallel_cpu,
        waiting,
        "consumers",
    )


def share_group(load: Workload, know: Measured, assume: Assumed) -> Cost:
    """Return the cost of a share group, which has no delay; its brokers hold back a bounded number of records."""
    held = min(load.failed_messages, assume.share_locks * assume.origin_partitions * load.groups)
    return Cost(
        "Kafka share group (no delay)",
        1,
        50,
        0,
        load.waits / MILLION * know.share_cpu,
        held * 100 / 2**20,
        f"brokers, for {held:,} at most",
    )


PEERS: Final[tuple[Callable[[Workload, Measured, Assumed], Cost], ...]] = (
    reconsume,
    rocketmq,
    spring,
    parallel_consumer,
    share_group,
)
_HEAD: Final = 61
"""Bytes of the head of a batch in Kafka's log."""
_KEY: Final = b"k123456"


def _waiting_bytes(value: int) -> int:
    return record_bytes(len(_KEY), value, waiting_headers("bench", 123_456))


def _shared_topics() -> list[int]:
    """Return the partitions of each topic that all groups share, as this version makes them."""
    maker = TopicMaker(
        cast("KafkaAdmin", None), TopicNames("reconsume."), TopicSettings(replication_factor=3, max_message_bytes=2**20)
    )
    return [one.partitions for one in wanted_topics(maker, Groups())]


def measured(results: Sequence[Result]) -> Measured:
    """Take the model's values from recorded results; missing values, and all that depends on them, are not numbers."""
    medians = {one.key: one.median for one in results}

    def value(*key: str) -> float:
        return medians.get(cast("tuple[str, str, str]", key), nan)

    late, late_200 = (f"1 level, 1 worker, {groups}, late" for groups in ("1 group", "200 groups"))
    return Measured(
        value("throughput", late, "scheduler's CPU"),
        value("throughput", late_200, "scheduler's CPU"),
        value("send-backs", "PushConsumer, 20 threads", "CPU"),
        value("memory", "1,000,000 waiting", "peak"),
        value("throughput", late_200, "a worker's peak of memory"),
        value("throughput", late, "scheduler"),
        value("throughput", late_200, "scheduler"),
        value("peer-spring", "backlog, setSeekAfterError(false)", "CPU"),
        value("peer-parallel-consumer", "backlog", "CPU"),
        value("peer-share-group", "backlog, each released once", "CPU"),
        value("peer-rocketmq-4", "backlog, 1 level, warm", "the broker's CPU"),
    )


def table(load: Workload, know: Measured, assume: Assumed) -> str:
    """Return a Markdown table: each product for each number of groups."""
    lines = ["| groups | product | topics | partitions | GiB in the logs | CPU, s | memory, MiB | of |"]
    lines.append("|---:|---|---:|---:|---:|---:|---:|---|")
    for groups in GROUPS:
        for product in PEERS:
            one = product(replace(load, groups=groups), know, assume)
            shown = f"{groups:,}" if product is reconsume else ""
            memory = number(one.memory_mib or nan)
            lines.append(
                f"| {shown} | {one.product} | {one.topics:,} | {one.partitions:,} | {number(one.log_bytes / GIB)} | "
                f"{number(one.cpu_seconds)} | {memory} | {one.processes} |"
            )
    return "\n".join(lines) + "\n"


def checks(results: Sequence[Result], assume: Assumed) -> Iterator[tuple[str, float, float]]:
    """Yield predictions of the model for small cases beside the measurements: (name, model, measured)."""
    medians = {one.key: one.median for one in results}
    case = "backlog of 100,000, values of 200 bytes"
    model = _waiting_bytes(len(PAYLOAD)) + _HEAD / assume.records_of_a_batch
    for topic in ("delay topic", "retry topic"):
        yield f"bytes of a record in the {topic}", model, medians.get(("bytes", case, topic), nan)
    consumers = medians.get(("peer-spring", "backlog, setSeekAfterError(false)", "consumers"), nan)
    yield "consumers of Spring Kafka with one delay", 3, consumers


def on_paper(waiting: int, load: Workload, know: Measured, assume: Assumed) -> Iterator[tuple[str, str]]:
    """Yield the resources of this many waiting records: names and values."""
    record = _waiting_bytes(load.value_bytes) + _HEAD / assume.records_of_a_batch
    partitions = TopicSettings().delay_partitions + TopicSettings().bulk_partitions
    disk = waiting * record
    yield "bytes in delay topics, one replica", f"{disk / GIB:,.0f} GiB"
    yield f"bytes with {load.replicas} replicas, retry topics included", f"{2 * load.replicas * disk / GIB:,.0f} GiB"
    yield "segments of 1 GiB in a partition, all on one level", f"{disk / GIB / partitions:,.0f}"
    yield "memory of a worker, which does not depend on what waits", f"{number(know.worker_mib)} MiB"
    for groups, rate, cpu in (
        ("one group", know.records_per_second, know.scheduler_cpu),
        ("200 groups", know.records_per_second_200_groups, know.scheduler_cpu_200_groups),
    ):
        yield f"one worker delivers all of it, due at once, of {groups}, in", f"{number(waiting / rate / 3_600)} h"
        yield f"CPU of the workers for it, of {groups}", f"{number(waiting / MILLION * cpu / 3_600)} h of a core"
    yield "records per second, if they become due evenly over a day", f"{waiting / SECONDS_OF_A_DAY:,.0f}"


def main() -> None:
    load, assume = Workload(), Assumed()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failures", type=int, default=load.failed_messages, help="failed messages")
    parser.add_argument("--failures-each", type=int, default=load.failures_each)
    parser.add_argument("--value-bytes", type=int, default=load.value_bytes)
    parser.add_argument("--replicas", type=int, default=load.replicas)
    parser.add_argument("--delays", type=int, default=load.delays)
    options = parser.parse_args()
    load = Workload(options.failures, options.failures_each, 1, options.value_bytes, options.replicas, options.delays)
    know = measured([one for run in read_runs(RECORDED).values() for one in run.results])
    print(table(load, know, assume))


if __name__ == "__main__":
    main()
