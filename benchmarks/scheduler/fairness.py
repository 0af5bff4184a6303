"""How late ten records of one group are behind a flood of another one in the same delay topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Producer

from benchmarks.harness.registry import RATE, Place, Sample, measurement
from benchmarks.installation import PAYLOAD, installed, produce_one, read_all, scheduler
from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.writing.lane_partitions import LanePartitions

FEW: Final = 10
DELAY_MS: Final = 1_000


@measurement("fairness", rounds=2)
def fairness(place: Place) -> Iterator[Sample]:
    """Ten records behind an overdue flood of 1,000,000 from 1, 4 and 20 processes, and what they cost the flood."""
    for processes in (1, 4, 20):
        case = f"flood from {processes} process" + "es" * (processes > 1)
        seconds, late = {}, [0]
        for few in place.in_turn((0, FEW)):
            flood, ten = _flooded(place, processes, few)
            seconds[few] = (flood[-1] - flood[0]) / 1_000
            late = sorted(one - flood[0] for one in ten) or late
        yield Sample(case, "p50 of the ten, after the first delivery", "ms", late[len(late) // 2])
        yield Sample(case, "max of the ten, after the first delivery", "ms", late[-1])
        yield Sample(case, "flood", "s", seconds[FEW])
        yield Sample(case, "flood to the flood without the ten", RATE, seconds[0] / seconds[FEW])


def _flooded(place: Place, processes: int, few: int) -> tuple[list[int], list[int]]:
    """Return the append times of the flood's deliveries, and of the few; all are due when the worker starts.

    Each of the processes that write the flood has a budget of its own.
    """
    records = place.size(1_000_000, 50_000)
    with installed(place.bootstrap_servers) as settings:
        retry, writers = settings.names.retry, [LanePartitions(Groups) for _ in range(processes)]
        _write(settings, writers, "bench", records)
        _write(settings, writers[:1], "few", few)
        topics = {retry("bench"): 1} | ({retry("few"): 1} if few else {})
        stamps: dict[str, list[int]] = {topic: [] for topic in topics}
        with scheduler(settings):
            for topic, _, stamp in read_all(settings, topics, records + few):
                stamps[topic].append(stamp)
    return sorted(stamps[retry("bench")]), sorted(stamps.get(retry("few"), []))


def _write(settings: Settings, writers: Sequence[LanePartitions], group: str, records: int) -> None:
    lane = settings.names.delay(DELAY_MS)
    partitions = settings.topics.delay_partitions + settings.topics.bulk_partitions
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    for number in range(records):
        key = b"%s%d" % (group.encode(), number)
        partition = writers[number % len(writers)].choose(lane, partitions, group, key)
        produce_one(producer, lane, number, PAYLOAD, group, partition)
    producer.flush()
