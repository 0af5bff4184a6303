"""Run the demo: Kafka, topics, rows, two schedulers, a consumer group; watch the topics; print what they hold."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.kafka.clients import make_producer, produce_patiently
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.environment import without_settings
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.bridge.topics.topics import install
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_port
from reconsume.cli.common import exit_at_sigterm, missing_of
from reconsume.cli.demo.application import failures_of, flights_application
from reconsume.cli.demo.rows import Row, parse_condition, read_rows
from reconsume.cli.judging.judge import DEAD, LEVEL_TABLE, TopicsJudge
from reconsume.cli.judging.reading import Begun, TopicReader, Workload
from reconsume.cli.output import Coloured, print_json, print_table, tell
from reconsume.cli.progress import progress_bars, working
from reconsume.consumers.listeners import listener_call
from reconsume.consumers.sending import send_back_log
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.human_text import counted

ORIGIN: Final = "flights"
PROCESSED: Final = "flights.processed"
GROUP: Final = "departures"
_STALLED_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.2
_READY_SECONDS: Final = 30.0


class DemoFailed(ReconsumeError):
    """A scheduler ended by itself."""


def run_demo(input_file: Path | None, key: str | None, fail_if: str, *, as_json: bool) -> bool:
    """Run the demo and print its counts; return whether nothing was lost, early or delivered twice."""
    exit_at_sigterm()
    # The built-in rows have a key column.
    key = "flight" if key is None and input_file is None else key
    # The listener fails on purpose thousands of times; its log would hide the progress.
    for module in (listener_call, send_back_log):
        logging.getLogger(module.__name__).setLevel(logging.CRITICAL)
    condition = parse_condition(fail_if)
    # A wrong file or column is reported now, not after Kafka's start.
    if (first := next(read_rows(input_file), None)) is not None:
        _require_column(first, key)
    with ExitStack() as stack:
        with working("starting Kafka") as say:
            kafka = stack.enter_context(LocalKafka(progress=say))
        tell(f"Kafka runs at {kafka.bootstrap_servers}")
        cluster = Cluster(Settings(bootstrap_servers=kafka.bootstrap_servers))
        install(cluster, SystemConfig(message_delay_level=LEVEL_TABLE))
        for topic in (ORIGIN, PROCESSED):
            cluster.admin.create(topic, 4, -1, {})
        for number in (1, 2):
            stack.enter_context(_scheduler(kafka.bootstrap_servers, number))
        produced = _produce(cluster, input_file, key)
        report = _consume(cluster, produced, condition)
        report["reconcile"] = _reconcile_in_spark(kafka.bootstrap_servers)
        print_report(report, as_json=as_json)
    return _is_well(report)


def _is_well(report: dict[str, Any]) -> bool:
    """Return whether nothing is wrong, by our count and by Spark's; without Spark only ours counts."""
    agrees = report["reconcile"] is None or report["reconcile"]["verdict"] == "ok"
    return agrees and not (report["lost"] or report["early"] or report["duplicates"])


def _produce(cluster: Cluster, input_file: Path | None, key: str | None) -> int:
    producer = make_producer(cluster.base | {"partitioner": "murmur2_random", "linger.ms": 20})
    count = 0
    with working("producing") as say:
        for count, row in enumerate(read_rows(input_file), start=1):
            _require_column(row, key)
            produce_patiently(producer, ORIGIN, json.dumps(row), None if key is None else str(row[key]))
            producer.poll(0)
            if count % 5_000 == 0:
                say(f"producing: {count:,} rows")
        producer.flush()
    tell(f"produced {counted(count, 'row')} to {ORIGIN}")
    return count


def _require_column(row: Row, key: str | None) -> None:
    if key is not None and key not in row:
        raise ReconsumeError(f"--key {key}: the column does not exist; the columns are {', '.join(row)}")


@contextmanager
def _scheduler(bootstrap_servers: str, number: int) -> Iterator[None]:
    """Run a scheduler worker in a separate process, as in production."""
    management = f"127.0.0.1:{free_port()}"
    command = [
        # The guard ends the worker when our end of the pipe closes, however this process ends.
        *(sys.executable, "-P", "-m", "reconsume.cli.broker.guard"),
        *(sys.executable, "-P", "-m", "reconsume", "scheduler", "--instance-id", f"demo-{number}"),
        *("--bootstrap-servers", bootstrap_servers, "--management", management),
    ]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=without_settings(os.environ),
        ) as worker,
    ):
        try:
            _wait_until_ready(f"http://{management}/readyz", worker)
            yield
            if worker.poll() is not None:
                log.seek(0)
                raise DemoFailed(
                    f"scheduler {number} ended unexpectedly:\n{log.read().decode(errors='replace')[-2000:]}"
                )
        finally:
            worker.terminate()


def _wait_until_ready(url: str, worker: subprocess.Popen[bytes]) -> None:
    """Wait until a worker has joined its group, which takes seconds and would make records late."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy would look on its own machine
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline and worker.poll() is None:
        with suppress(OSError), direct.open(url, timeout=1):
            return
        time.sleep(0.1)


def _consume(cluster: Cluster, produced: int, condition: Callable[[Row], bool]) -> dict[str, Any]:
    """Read all topics until everything has ended, or nothing has happened for long."""

    def begun(read: ReadRecord) -> Begun | None:
        origin = f"{read.topic}/{read.partition}/{read.offset}"
        return (failures_of(read.value, origin, condition), None) if read.topic == ORIGIN else None

    servers = cluster.settings.bootstrap_servers
    application = flights_application(servers, GROUP, topic=ORIGIN, processed=PROCESSED, cannot_process=condition)
    reading = TopicReader(cluster, Workload((ORIGIN,), PROCESSED, begun), tell)
    with application, reading as reader, progress_bars() as progress:
        ended = progress.add_task("processed or dead", total=produced)
        moved = progress.add_task("sent back and moved on", total=None)
        judge, done = reader.judge, False
        while not done and time.monotonic() - reader.quiet_since < _STALLED_SECONDS:
            reader.check()
            with reader.lock:
                sent_back, moved_on = judge.moves
                progress.update(ended, completed=judge.messages - judge.behind)
                progress.update(moved, completed=moved_on, total=max(1, sent_back))
                done = judge.complete and judge.messages == produced
            time.sleep(_LOOK_SECONDS)
    return report_of(judge)


def report_of(judge: TopicsJudge) -> dict[str, Any]:
    """Return the figures, as `reconsume demo -o json` prints them."""
    verdict, figures = judge.verdict(), judge.figures()
    failed, succeeded = figures["failed"], figures["succeeded_after"]
    lateness = sorted(done_ms - due_ms for due_ms, done_ms in judge.deliveries())
    return {
        "produced": verdict.messages,
        "delivered": figures["delivered"],
        # The first retry has level 3.
        "sent_back": {str(times + 2): failed[times] for times in sorted(failed) if times < DEAD},
        "succeeded_after": {str(times): succeeded[times] for times in sorted(succeeded)},
        "dead_letters": figures["dead_letters"],
        "quarantined": verdict.quarantined,
        "lateness_ms": {name: _quantile(lateness, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1))},
        "early": verdict.early,
        "lost": verdict.lost + verdict.wrongly_quarantined,
        "duplicates": verdict.duplicates + judge.processed_again,
    }


def _quantile(ordered: list[int], part: float) -> int:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0


def _reconcile_in_spark(bootstrap_servers: str) -> dict[str, Any] | None:
    """Return the figures of reconcile, with its page under `report`; None without Spark.

    Raises:
        ReconsumeError: the command failed.
    """
    if missing_of("spark"):
        tell("pip install '.[spark]' in the checkout adds a reconciliation to this demo")
        return None
    folder = Path(tempfile.mkdtemp(prefix="reconsume-demo-"))
    try:
        return _reconcile_into(folder / "report.html", bootstrap_servers)
    except BaseException:
        shutil.rmtree(folder)
        raise


def _reconcile_into(report: Path, bootstrap_servers: str) -> dict[str, Any]:
    # A separate process keeps the JVM's output out of the demo's.
    command = [
        *(sys.executable, "-P", "-m", "reconsume", "reconcile", "-o", "json", "--report", str(report)),
        *("--bootstrap-servers", bootstrap_servers, "--master", "local[2]"),
    ]
    with (
        working("reconciling with Spark"),
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=without_settings(os.environ),
        ) as run,
    ):
        try:
            found, told = run.communicate()
        except BaseException:
            run.terminate()  # it removes its folder
            raise
    try:
        return {**json.loads(found), "report": str(report)}
    except ValueError:
        raise ReconsumeError(f"the reconciliation failed:\n{told[-2000:]}") from None


def print_report(report: dict[str, Any], *, as_json: bool) -> None:
    """Print the figures, and the verdict to standard error."""
    if as_json:
        print_json(report)
        return
    print_table("what the topics hold", None, _rows(report))
    if report["reconcile"] is not None:
        _print_reconcile(report["reconcile"])
    good = Coloured("nothing lost, nothing early, nothing twice", "green")
    tell(good if _is_well(report) else Coloured("something is wrong; see above", "red"))


def _rows(report: dict[str, Any]) -> Iterator[tuple[object, object]]:
    yield "produced", report["produced"]
    yield "delivered (first time and retries)", report["delivered"]
    for level, count in report["sent_back"].items():
        yield f"sent back to level {level} ({LEVEL_TABLE.split()[int(level) - 1]})", count
    for times, count in report["succeeded_after"].items():
        yield f"succeeded after {counted(int(times), 'retry', 'retries')}", count
    yield "dead letters", report["dead_letters"]
    if report["quarantined"]:
        yield "quarantined", Coloured(f"{report['quarantined']:,}", "red")
    for name, value in report["lateness_ms"].items():
        yield f"lateness {name}", f"{value:,} ms"
    for name in ("early", "lost", "duplicates"):
        yield name, Coloured(f"{report[name]:,}", "green" if report[name] == 0 else "red")


def _print_reconcile(found: dict[str, Any]) -> None:
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in found["findings"].items()) or "none"
    tell(
        f"Spark reconciled {counted(found['attempts'], 'send-back')}: {found['moved']:,} delivered again, "
        f"{counted(found['dead'], 'dead letter')}, {found['waiting']:,} waiting; findings: {kinds}\n"
        f"report: {found['report']}"
    )
