"""`python -m benchmarks`: throughput, lateness, delayed messages, memory, consumers, the sidecar, replay with Spark."""

from __future__ import annotations

from benchmarks.delayed import measure_delayed
from benchmarks.drop_in import measure_drop_in
from benchmarks.fairness import measure_fairness
from benchmarks.lateness import measure_lateness
from benchmarks.many_topics import measure_many_topics
from benchmarks.memory import measure_memory
from benchmarks.push_consumer import measure_push_consumer
from benchmarks.sidecar_push import measure_sidecar_push
from benchmarks.sidecar_send_back import measure_sidecar_send_back
from benchmarks.spark_replay import measure_spark_replay
from benchmarks.throughput import measure_throughput
from benchmarks.withdrawals import measure_withdrawals
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka


def main() -> None:
    measure_many_topics()
    with LocalKafka(version=NEWEST_KAFKA_VERSION, progress=print) as kafka:
        measure_throughput(kafka.bootstrap_servers)
        for per_second in (1_000, 10_000):
            measure_lateness(kafka.bootstrap_servers, per_second, seconds=15)
        for per_second in (100, 1_000):
            measure_delayed(kafka.bootstrap_servers, per_second, seconds=20)
        for processes in (1, 4, 20):
            measure_fairness(kafka.bootstrap_servers, 1_000_000, processes)
        measure_memory(kafka.bootstrap_servers)
        measure_withdrawals(kafka.bootstrap_servers)
        measure_drop_in(kafka.bootstrap_servers)
        measure_push_consumer(kafka.bootstrap_servers)
        measure_sidecar_send_back(kafka.bootstrap_servers)
        measure_sidecar_push(kafka.bootstrap_servers)
        measure_spark_replay(kafka.bootstrap_servers)


if __name__ == "__main__":
    main()
