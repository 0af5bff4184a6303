"""How late ten records of one group are behind a flood of another one in the same delay topic."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Producer

from benchmarks.installation import PAYLOAD, install, produce_one, read_all, scheduler
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.writing.lane_partitions import LanePartitions

_FEW = 10
_DELAY_MS = 1_000


def measure_fairness(bootstrap_servers: str, flood: int, processes: int) -> None:
    """Print how long after the first delivery the ten came, and the last of the flood, in seconds.

    All of them are due when the worker starts; the flood was written by so many consumers, each with its own budget.
    """
    alone, _ = _flooded(bootstrap_servers, flood, processes, 0)
    many, few = _flooded(bootstrap_servers, flood, processes, _FEW)
    began = many[0]
    print(
        f"flood of {flood:,} from {processes} processes, overdue: ten of another group came "
        f"{few[len(few) // 2] - began} ms (p50), {few[-1] - began} ms (max) after the first delivery; the flood took "
        f"{(many[-1] - began) / 1_000:.1f} s, without the ten {(alone[-1] - alone[0]) / 1_000:.1f} s"
    )


def _flooded(bootstrap_servers: str, flood: int, processes: int, few: int) -> tuple[list[int], list[int]]:
    """Append times of the flood's deliveries, and of the few."""
    settings = install(bootstrap_servers)
    retry, writers = settings.names.retry, [LanePartitions(Groups) for _ in range(processes)]
    _write(settings, writers, "bench", flood)
    _write(settings, writers[:1], "few", few)
    topics = {retry("bench"): 1} | ({retry("few"): 1} if few else {})
    stamps: dict[str, list[int]] = {topic: [] for topic in topics}
    with scheduler(settings):
        for topic, _, stamp in read_all(settings, topics, flood + few):
            stamps[topic].append(stamp)
    return sorted(stamps[retry("bench")]), sorted(stamps.get(retry("few"), []))


def _write(settings: Settings, writers: Sequence[LanePartitions], group: str, records: int) -> None:
    lane = settings.names.delay(_DELAY_MS)
    partitions = settings.topics.delay_partitions + settings.topics.bulk_partitions
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    for number in range(records):
        key = b"%s%d" % (group.encode(), number)
        partition = writers[number % len(writers)].choose(lane, partitions, group, key)
        produce_one(producer, lane, number, PAYLOAD, group, partition)
    producer.flush()
