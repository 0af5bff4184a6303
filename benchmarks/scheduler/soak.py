"""An hour at a steady load: memory, file handles and threads of every process, and whether they grow.

    python -m benchmarks.scheduler.soak --minutes 60 --rate 100

Two schedulers and two consumers that are exactly once, and beside them a sidecar that pushes to an app, with a
scheduler of its own; 30 of 100 messages fail, 5 until they are dead. At the end the topics are judged as
`reconsume chaos` judges them.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import psutil

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.jars import NEWEST_KAFKA_VERSION
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.chaos.cluster.processes import Processes, UnderTest
from reconsume.cli.chaos.operator import Operator
from reconsume.cli.chaos.poison import workload
from reconsume.cli.chaos.workload import ORIGIN, failures_in, produce
from reconsume.cli.judging.judge import MAX_RECONSUME_TIMES, TopicsVerdict
from reconsume.cli.judging.reading import TopicReader

EVERY_SECONDS = 10.0
WARM_SHARE = 0.2
"""The share of the time in which caches and pools still fill."""
BACKLOG, LAST_SECONDS = 20_000, 120.0
PUSHED_PREFIX = "pushed."


class Sample(NamedTuple):
    """A sample of a process: minutes since the start, memory in MiB."""

    minutes: float
    memory: float
    handles: int
    threads: int


@dataclass
class Watched:
    """The samples of a process over time."""

    name: str
    process: psutil.Process
    samples: list[Sample] = field(default_factory=list)

    def look(self, minutes: float) -> None:
        """Take a sample."""
        with self.process.oneshot():
            memory = self.process.memory_info().rss / 2**20
            self.samples.append(Sample(minutes, memory, self.process.num_fds(), self.process.num_threads()))

    def row(self, warm_minutes: float) -> str:
        """Return the summary from then on; memory's slope is that of a line fitted to all samples."""
        warm = [one for one in self.samples if one.minutes >= warm_minutes]
        slope = statistics.linear_regression([one.minutes for one in warm], [one.memory for one in warm]).slope
        handles, threads = [one.handles for one in warm], [one.threads for one in warm]
        return (
            f"{self.name:19} {warm[0].memory:8.1f} {warm[-1].memory:8.1f} {slope * 60:+9.2f}   "
            f"{handles[0]:4} {handles[-1]:4} {max(handles):4}   {threads[0]:4} {threads[-1]:4} {max(threads):4}"
        )


class App(BaseHTTPRequestHandler):
    """An app that fails as often as the message says."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer one message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200 if int(self.headers["reconsume-times"]) >= failures_in(body) else 500)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def app() -> Iterator[str]:
    """Yield the address of an app in this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), App)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def under_test(bootstrap_servers: str, url: str, folder: Path) -> Processes:
    """Yield all processes; those of the sidecar have another prefix, so that the judge does not see them."""
    sidecar = folder / "sidecar.toml"
    sidecar.write_text(
        f'topic_prefix = "{PUSHED_PREFIX}"\n[[subscriptions]]\ngroup = "pushed"\ntopics = ["{ORIGIN}"]\nurl = "{url}"\n'
        f"max_reconsume_times = {MAX_RECONSUME_TIMES}\n"
    )
    pushed = folder / "pushed.toml"
    pushed.write_text(f'topic_prefix = "{PUSHED_PREFIX}"\n')

    def one(name: str, *arguments: str) -> UnderTest:
        return UnderTest(name, [sys.executable, "-m", *arguments], folder)

    common = ("--bootstrap-servers", bootstrap_servers, "--management", "127.0.0.1:0", "--log-level", "WARNING")
    schedulers = [
        one(f"scheduler {number}", "reconsume", "scheduler", "--instance-id", f"soak-{number}", *common)
        for number in (1, 2)
    ]
    consumers = [
        one(f"consumer {number}", "reconsume.cli.chaos.cluster.consumer", bootstrap_servers) for number in (1, 2)
    ]
    beside = [
        one("sidecar's scheduler", "reconsume", "scheduler", "--config", str(pushed), "--instance-id", "s", *common),
        one("sidecar", "reconsume", "sidecar", "--config", str(sidecar), "--listen", "127.0.0.1:0", *common),
    ]
    return Processes(schedulers, [*consumers, *beside])


def watch(processes: Sequence[UnderTest], minutes: float, say: Callable[[str], None]) -> list[Watched]:
    """Sample all processes until the time is over."""
    watched = [Watched(one.name, psutil.Process(one.pid)) for one in processes]
    begun, told = time.monotonic(), 0
    while (passed := (time.monotonic() - begun) / 60) < minutes:
        for one in watched:
            one.look(passed)
        if passed >= told:
            told += 10
            say(f"{passed:3.0f} min: " + ", ".join(f"{one.name} {one.samples[-1].memory:.0f} MiB" for one in watched))
        time.sleep(EVERY_SECONDS)
    return watched


def soak(minutes: float, rate: float, say: Callable[[str], None]) -> tuple[list[Watched], TopicsVerdict]:
    """Run the whole measurement."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(LocalKafka(version=NEWEST_KAFKA_VERSION))
        settings = Settings(bootstrap_servers=kafka.bootstrap_servers)
        cluster = Cluster(settings)
        Operator(cluster).make_topics()
        Operator(Cluster(settings.model_copy(update={"topic_prefix": PUSHED_PREFIX}))).make_topics()
        reader = stack.enter_context(TopicReader(cluster, workload(cluster.names), say))
        processes = stack.enter_context(under_test(kafka.bootstrap_servers, stack.enter_context(app()), folder))
        stop = threading.Event()
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(stop.set)
        load = pool.submit(produce, settings.client_settings(), rate, stop, lambda: reader.judge.behind > BACKLOG)
        watched = watch(processes.all(), minutes, say)
        stop.set()
        produced, deadline = load.result(), time.monotonic() + LAST_SECONDS
        while time.monotonic() < deadline and not (reader.judge.complete and reader.judge.messages == produced):
            reader.check()
            time.sleep(1)
        for one in processes.all():
            if one.has_ended:
                raise SystemExit(f"{one.name} has ended by itself:\n{one.log.read_text()[-2000:]}")
        with reader.lock:
            return watched, reader.judge.verdict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=100, help="messages per second")
    options = parser.parse_args()
    # So that the processes under test end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    watched, verdict = soak(options.minutes, options.rate, lambda line: print(line, flush=True))
    print(f"{'':19} {'MiB after':>8} {'at end':>8} {'MiB/hour':>9}   {'handles':14}   threads (first, last, most)")
    for one in watched:
        print(one.row(options.minutes * WARM_SHARE))
    print(
        f"{verdict.messages:,} messages, {verdict.failures:,} failures: "
        f"lost {verdict.lost}, early {verdict.early}, duplicates {verdict.duplicates}"
    )


if __name__ == "__main__":
    main()
