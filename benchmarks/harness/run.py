"""Runs measurements in rounds of all of them, so that a burst of other load affects one round of each."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness.registry import Measurement, Place
from benchmarks.harness.results import Result, Results, RunResult
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka

__all__ = ["local_place", "measure", "run_result"]


@contextmanager
def local_place(*, quick: bool = False, large: bool = False) -> Iterator[Place]:
    """A Kafka on loopback, and sizes."""
    with tempfile.TemporaryDirectory(prefix="reconsume-bench-") as folder:
        data = Path(folder) / "kafka"
        with LocalKafka(data_dir=data, version=NEWEST_KAFKA_VERSION, progress=_say) as kafka:
            yield Place(kafka.bootstrap_servers, str(data / "log"), quick, large)


def measure(place: Place, measurements: Sequence[Measurement], rounds: Callable[[Measurement], int]) -> list[Result]:
    """Run all rounds of all measurements, and write the progress to standard error."""
    results = Results()
    for turn in range(max(map(rounds, measurements), default=0)):
        place.turn = turn
        for one in measurements:
            if turn < rounds(one):
                busy = _other_work()
                began = time.monotonic()
                results.add(one.name, one.run(place), busy)
                _say(f"{one.name}, round {turn + 1} of {rounds(one)}: {time.monotonic() - began:.0f} s")
    return results.listed()


def run_result(results: Sequence[Result]) -> RunResult:
    """Add the facts that a reader needs to repeat the run."""
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    return RunResult(time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), command, _machine(), results)


def _other_work() -> float:
    """Return the busy share of all cores while no measurement runs.

    The least of three looks: the broker may still tidy up after the measurement before.
    """
    return min(psutil.cpu_percent(interval=0.4) for _ in range(3)) / 100


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "kafka": NEWEST_KAFKA_VERSION,
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
