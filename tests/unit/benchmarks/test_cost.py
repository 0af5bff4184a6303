"""What failed messages cost by the model: sizes of records, topics, bytes, and values of the recorded results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cost import PEERS, Assumed, Cost, Measured, Workload, measured, on_paper, record_bytes, table
from benchmarks.harness.results import Result, number

KNOW = Measured(
    scheduler_cpu=10,
    scheduler_cpu_200_groups=20,
    send_back_cpu=30,
    worker_mib=60,
    worker_mib_200_groups=80,
    records_per_second=50_000,
    records_per_second_200_groups=25_000,
    spring_cpu=400,
    parallel_cpu=50,
    share_cpu=60,
    rocketmq_cpu=5,
)


def costs(load: Workload) -> dict[str, Cost]:
    return {one.product.split()[0]: one for one in (product(load, KNOW, Assumed()) for product in PEERS)}


@pytest.mark.parametrize(
    ("key", "value", "headers", "size"),
    [
        (1, 1, [], 11),
        (1, 63, [], 74),  # the size itself takes two bytes from 64 on, as does the length of the value
        (1, 64, [], 76),
        (1, 1, [("a", b"bc")], 16),
        (1, 1, [("a", None), ("b", "é")], 19),
    ],
)
def test_the_size_of_a_record_is_that_of_format_v2(
    key: int, value: int, headers: list[tuple[str, str | bytes | None]], size: int
) -> None:
    assert record_bytes(key, value, headers) == size


@pytest.mark.parametrize("groups", [1, 50, 200, 10_000])
def test_a_group_adds_two_topics_and_for_spring_one_for_each_delay_and_dead_letters(groups: int) -> None:
    one, many = costs(Workload(groups=1)), costs(Workload(groups=groups))
    assert many["reconsume"].topics - one["reconsume"].topics == 2 * (groups - 1)
    assert many["reconsume"].partitions - one["reconsume"].partitions == 2 * (groups - 1)
    assert many["RocketMQ"].topics == 1 + 2 * groups
    assert many["Spring"].topics == 17 * groups
    assert many["Confluent"].topics == 0


@pytest.mark.parametrize(("delays", "topics", "consumers"), [(1, 2, 3), (4, 5, 6)])
def test_topics_and_consumers_of_spring_are_those_that_it_makes(delays: int, topics: int, consumers: int) -> None:
    found = costs(Workload(delays=delays))["Spring"]
    assert (found.topics, found.processes) == (topics, f"{consumers} consumers")


def test_bytes_and_cpu_grow_with_failures_and_memory_of_workers_does_not() -> None:
    one, ten = costs(Workload()), costs(Workload(failed_messages=10_000_000))
    for product in ("reconsume", "RocketMQ", "Spring"):
        assert ten[product].log_bytes == pytest.approx(10 * one[product].log_bytes)
        assert ten[product].cpu_seconds == pytest.approx(10 * one[product].cpu_seconds)
    assert ten["reconsume"].memory_mib == one["reconsume"].memory_mib
    assert ten["Confluent"].memory_mib == pytest.approx(10 * one["Confluent"].memory_mib)


def test_each_wait_is_written_twice_to_each_replica() -> None:
    single = Workload(failed_messages=1, failures_each=1, replicas=1, value_bytes=1_000)
    found = costs(single)["reconsume"].log_bytes
    assert 2 * 1_200 < found < 2 * 1_400
    assert costs(replace(single, replicas=3))["reconsume"].log_bytes == pytest.approx(3 * found)


def test_memory_of_workers_stops_to_grow_when_their_producers_are_replaced() -> None:
    memory = {groups: costs(Workload(groups=groups))["reconsume"].memory_mib for groups in (1, 200, 1_000, 10_000)}
    assert memory[1] < memory[200] < memory[1_000] == memory[10_000]
    assert memory[200] == pytest.approx(2 * 80)


@pytest.mark.parametrize(("groups", "of_a_million"), [(1, 10 + 30), (200, 20 + 30), (10_000, 20 + 30)])
def test_cpu_of_workers_is_that_of_their_number_of_groups(groups: int, of_a_million: int) -> None:
    assert costs(Workload(groups=groups))["reconsume"].cpu_seconds == pytest.approx(3 * of_a_million)


def test_the_table_has_each_product_for_each_number_of_groups() -> None:
    lines = table(Workload(), KNOW, Assumed()).splitlines()
    assert len(lines) == 2 + 4 * len(PEERS)
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_a_billion_waiting_records_take_no_more_memory_than_a_million() -> None:
    billion, million = (dict(on_paper(number, Workload(), KNOW, Assumed())) for number in (10**9, 10**6))
    memory = "memory of a worker, which does not depend on what waits"
    assert billion[memory] == million[memory] == "60 MiB"
    assert billion["one worker delivers all of it, due at once, of one group, in"] == "5.56 h"
    assert billion["one worker delivers all of it, due at once, of 200 groups, in"] == "11.1 h"
    assert billion["CPU of the workers for it, of 200 groups"] == "5.56 h of a core"


def test_a_value_that_is_not_recorded_leaves_a_dash_and_topics_and_bytes_stay() -> None:
    know = measured([Result("memory", "1,000,000 waiting", "peak", "MiB", (60, 70, 65))])
    assert know.worker_mib == 65
    row = table(Workload(), know, Assumed()).splitlines()[2].split(" | ")
    assert row[1] == "reconsume"
    assert row[4:7] == [number(costs(Workload())["reconsume"].log_bytes / 2**30), "–", "–"]
