"""A run: cluster, processes, workload, one fault after the other, and the verdict."""

from __future__ import annotations

import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.ports import free_port
from reconsume.cli.chaos.cluster.brokers import ChaosCluster
from reconsume.cli.chaos.cluster.processes import Processes, UnderTest
from reconsume.cli.chaos.cluster.pushed import app_command, sidecar_command
from reconsume.cli.chaos.cluster.worker import set_ahead
from reconsume.cli.chaos.faults import Fault, FaultKind, kinds_for, schedule
from reconsume.cli.chaos.inflict import Inflictor
from reconsume.cli.chaos.operator import Operator
from reconsume.cli.chaos.poison import MIXES, PoisonLoad, workload
from reconsume.cli.chaos.recovery import LATE_MS, Inflicted, lateness, recoveries, summary
from reconsume.cli.chaos.workload import produce
from reconsume.cli.common import exit_at_sigterm, need
from reconsume.cli.judging.judge import TopicsVerdict
from reconsume.cli.judging.reading import TopicReader
from reconsume.cli.output import print_json, print_line, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.human_text import counted

_EACH: Final = 3
"""Number of schedulers, and of consumers."""
_BEGIN_SECONDS: Final = 180.0
_QUIET_SECONDS: Final = 3.0
_BACKLOG: Final = 20_000
"""At this many unfinished messages the workload pauses, so that the run ends soon after its last fault."""
_LOOK_SECONDS: Final = 0.2


class ChaosFailed(ReconsumeError):
    """The run itself failed."""


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options of a run.

    Attributes:
        rate: messages per second.
        sidecar: whether a member of the group is a sidecar that pushes to an app; both may be victims.
        faults: the faults; None uses the schedule of the seed.
        worker: the program of the schedulers; its first argument is the file of its clock.
        patience: after this many seconds without progress, unfinished messages count as lost.
    """

    seed: int
    minutes: float
    brokers: int = 1
    rate: float = 200.0
    sidecar: bool = False
    faults: Sequence[Fault] | None = None
    worker: Sequence[str] = (sys.executable, "-P", "-m", "reconsume.cli.chaos.cluster.worker")
    patience: float = 90.0

    def schedule(self) -> Sequence[Fault]:
        """Return the faults."""
        return self.faults or schedule(self.seed, self.minutes * 60, kinds_for(sys.platform, sidecar=self.sidecar))


@dataclass(frozen=True, slots=True)
class ChaosReport:
    """The outcome of a run.

    Attributes:
        faults: the applied faults.
        ended: processes under test that ended by themselves and were restarted, as by a supervisor.
    """

    options: ChaosOptions
    faults: Sequence[Inflicted]
    verdict: TopicsVerdict
    recovery: dict[str, dict[str, float]]
    lateness: dict[str, dict[str, float]]
    ended: list[str]
    seconds: float
    folder: Path

    @property
    def ok(self) -> bool:
        """Return whether all promises were kept."""
        return self.verdict.ok

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON."""
        figures = asdict(self.verdict)
        examples = figures.pop("examples")
        return {
            **{name: getattr(self.options, name) for name in ("seed", "minutes", "brokers", "sidecar")},
            "seconds": round(self.seconds, 1),
            "faults": len(self.faults),
            **figures,
            "ended_by_themselves": self.ended,
            "recovery": self.recovery,
            "lateness": self.lateness,
            "examples": examples,
        }


def chaos(seed: int | None, minutes: float, brokers: int, rate: float, *, sidecar: bool, as_json: bool) -> bool:
    """Run it and print the figures; return whether all promises were kept."""
    if brokers not in (1, 3):
        raise IllegalSetting(f"--brokers {brokers}: use 1, or 3, of which one fails at a time")
    if sidecar:
        need("sidecar", "--sidecar")
    exit_at_sigterm()
    # The test itself stops brokers, so these log lines are expected.
    logging.getLogger("reconsume.bridge").setLevel(logging.CRITICAL)
    options = ChaosOptions(random.randrange(1, 1_000_000) if seed is None else seed, minutes, brokers, rate, sidecar)  # noqa: S311
    tell(f"seed {options.seed}; the same seed, minutes, brokers and kinds give the same faults")
    report = run_chaos(options, tell)
    print_report(report, as_json=as_json)
    return report.ok


def run_chaos(options: ChaosOptions, say: Callable[[str], None], folder: Path | None = None) -> ChaosReport:
    """Run faults and workload, and judge the topics.

    Args:
        options: the options of the run.
        say: called with the name of each step.
        folder: a folder for the logs of processes and brokers; the brokers' data stay there too if a promise was
            broken. None makes one.

    Raises:
        ReconsumeError: the cluster did not start, or nothing was ever processed.
    """
    begun, folder = time.monotonic(), folder or Path(tempfile.mkdtemp(prefix="reconsume-chaos-"))
    with ExitStack() as stack:
        cluster = stack.enter_context(ChaosCluster(options.brokers, say, folder))
        say(f"Kafka at {cluster.direct}, through proxies at {cluster.proxied}; logs in {folder}")
        direct = Cluster(Settings(bootstrap_servers=cluster.direct))
        operator = Operator(direct)
        operator.make_topics()
        faults = options.schedule()
        is_poisoned = any(one.kind in MIXES for one in faults)
        if is_poisoned:
            operator.prepare_poison()
        reader = stack.enter_context(TopicReader(direct, workload(direct.names), say))
        clocks = [folder / f"scheduler-{number}.clock" for number in range(_EACH)]
        processes = stack.enter_context(_processes(options, cluster, clocks, folder, poisoned=is_poisoned))
        stop = threading.Event()
        pool = stack.enter_context(ThreadPoolExecutor(1))
        stack.callback(stop.set)
        load = pool.submit(produce, direct.base, options.rate, stop, lambda: reader.judge.behind > _BACKLOG)
        _wait_for_the_first(reader, processes)
        poison = PoisonLoad(direct, options.rate)
        inflictor = Inflictor(cluster, processes, clocks, operator, poison, time.sleep)
        inflicted = _inflict(faults, inflictor, load, say)
        stop.set()
        _drain(load, poison, reader, processes, options.patience, say)
        with reader.lock:
            taken = [(one.began_ms, one.ended_ms) for one in inflicted if one.kind is FaultKind.WRITING_TAKEN]
            verdict = reader.judge.verdict(taken)
            recovery = summary(recoveries(inflicted, reader.judge.late(LATE_MS)))
            late = lateness(inflicted, reader.judge.deliveries())
        ended = list(processes.ended)
    if verdict.ok:
        cluster.remove_data()
    else:
        say(f"the brokers' data are kept: {', '.join(map(str, cluster.folders))}")
    return ChaosReport(options, inflicted, verdict, recovery, late, ended, time.monotonic() - begun, folder)


def _processes(
    options: ChaosOptions, cluster: ChaosCluster, clocks: Sequence[Path], folder: Path, *, poisoned: bool
) -> Processes:
    for clock in clocks:
        set_ahead(clock, 0)
    schedulers = [
        UnderTest(
            f"scheduler-{number}",
            [
                *(*options.worker, str(clock), "scheduler", "--instance-id", f"chaos-{number}"),
                *("--bootstrap-servers", cluster.proxied, "--management", "127.0.0.1:0"),
            ],
            folder,
        )
        for number, clock in enumerate(clocks)
    ]
    command = [sys.executable, "-P", "-m", "reconsume.cli.chaos.cluster.consumer", cluster.proxied]
    consumers = [UnderTest(f"consumer-{number}", command, folder) for number in range(_EACH)]
    bad = [UnderTest("consumer-poisoned", [*command, "poisoned"], folder)] if poisoned else []
    if not options.sidecar:
        return Processes(schedulers, consumers, poisoned=bad)
    port = free_port()
    sidecar = UnderTest("sidecar", sidecar_command(folder, cluster.proxied, port), folder)
    app = UnderTest("app", app_command(port, cluster.proxied), folder)
    return Processes(schedulers, consumers, [sidecar], [app], bad)


def _wait_for_the_first(reader: TopicReader, processes: Processes) -> None:
    deadline = time.monotonic() + _BEGIN_SECONDS
    while not reader.judge.any_processed:
        reader.check()
        if time.monotonic() > deadline or any(one.has_ended for one in processes.all()):
            raise ChaosFailed(f"no message was processed; see the logs in {processes.all()[0].folder}")
        time.sleep(_LOOK_SECONDS)


def _inflict(
    faults: Sequence[Fault], inflictor: Inflictor, load: Future[int], say: Callable[[str], None]
) -> list[Inflicted]:
    """Apply all faults; end at once if the load has ended, because faults without messages show nothing."""
    inflicted = []
    for number, fault in enumerate(faults, start=1):
        say(f"{number}/{len(faults)}: {fault}")
        began_ms = time.time() * 1000
        inflictor.inflict(fault)
        inflicted.append(Inflicted(fault.kind, began_ms, time.time() * 1000))
        inflictor.rest(fault.pause)
        inflictor.processes.revive()
        if load.done():
            load.result()
    return inflicted


def _drain(
    load: Future[int],
    poison: PoisonLoad,
    reader: TopicReader,
    processes: Processes,
    patience: float,
    say: Callable[[str], None],
) -> None:
    """Wait until everything has ended and nothing more arrives, or nothing happens for long.

    Raises:
        ChaosFailed: the judge has not read everything, so its verdict would be worthless.
    """
    produced, begun = load.result() + poison.produced, time.monotonic()
    say(f"{produced:,} messages produced; waiting for the last of them")
    while (quiet := time.monotonic() - max(reader.quiet_since, begun)) < patience:
        reader.check()
        processes.revive()
        with reader.lock:
            done = reader.judge.complete and reader.judge.messages >= produced
        if done and quiet > _QUIET_SECONDS:
            return
        time.sleep(_LOOK_SECONDS)
    if unread := reader.unread():
        named = ", ".join(f"{topic}-{partition}" for topic, partition in unread)
        raise ChaosFailed(f"the judge could not read {named} to the end, so the run has no verdict; run it again")


def print_report(report: ChaosReport, *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print_json(report.as_json())
        return
    verdict = report.verdict
    counts = (
        counted(len(report.faults), "fault"),
        counted(verdict.messages, "message"),
        counted(verdict.failures, "failure"),
    )
    print_line(f"seed {report.options.seed}: {', '.join(counts)}, {report.seconds:.0f} s")
    columns = ("", "faults", "p99", "median p99", "max", "recovery", "after end")
    print_table("healthy groups: lateness and recovery, seconds", columns, _by_kind(report))
    for example in verdict.examples:
        print_line(f"  {example}")
    for name, times in Counter(report.ended).items():
        print_line(f"  {name} has ended by itself, {counted(times, 'time')}; see {report.folder}")
    print_line(
        f"lost {verdict.lost}, early {verdict.early}, duplicates {verdict.duplicates}, "
        f"quarantined {verdict.quarantined}, wrongly {verdict.wrongly_quarantined}"
    )


def _by_kind(report: ChaosReport) -> Iterator[tuple[object, ...]]:
    """Yield the lateness of deliveries due during a fault or the pause after it, and the recovery times."""
    for kind, recovery in report.recovery.items():
        late = report.lateness.get(kind, {})
        figures = (late.get(one) for one in ("p99_seconds", "median_p99_seconds", "max_seconds"))
        yield (
            *(kind, recovery["faults"]),
            *(None if one is None else f"{one:.3f}" for one in figures),
            *(f"{recovery[one]:.1f}" for one in ("max_seconds", "max_seconds_after_end")),
        )
