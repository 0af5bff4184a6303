"""`reconsume replay`: plan, show, ask, run, report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import confirm
from reconsume.cli.output import counted, print_json, print_line, print_table
from reconsume.cli.progress import Progress, progress_bars
from reconsume.cli.spark.options import SparkChoice, absolute
from reconsume.cli.spark.session import open_session
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.replay import (
    ReplayPlan,
    ReplayProgress,
    histogram,
    open_plan,
    plan_replay,
    replay_report,
    replay_stream,
    run_replay,
)
from reconsume.spark_connectors.replay.selection import SEND, STATUSES

__all__ = ["ReplayOptions", "print_plan", "print_result", "replay"]

_SHOWN: Final = ("cause", "group", "hour")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What the command line says; None where it says nothing."""

    folder: str | None
    where: str | None
    groups: Sequence[str]
    topics: Sequence[str]
    target: str | None
    for_group: str | None
    max_replays: int
    rate: float | None
    dry_run: bool
    yes: bool
    at_least_once: bool
    stream: str | None
    spark: SparkChoice


def replay(settings: Settings, options: ReplayOptions, *, as_json: bool) -> None:
    """Carry the command out.

    Raises:
        IllegalSetting: options that do not fit each other, or the plan of the folder.
    """
    folder = _folder(options)
    _check_topics(settings, options)
    with _shown(as_json=as_json) as screen:
        with explained("Spark did not start"):
            spark = open_session(screen.say, options.spark)
        try:
            run = _Replay(spark, settings, options, folder, screen)
            run.batch() if options.stream is None else run.stream(options.stream)
        finally:
            spark.stop()


@dataclass(frozen=True, slots=True)
class _Replay:
    """One execution of the command."""

    spark: SparkSession
    settings: Settings
    options: ReplayOptions
    folder: str
    screen: _Screen

    @property
    def _chosen(self) -> dict[str, Any]:
        """Which dead letters, and where they go, as `plan_replay` and `replay_stream` take it."""
        return {
            "where": self.options.where or "true",
            "groups": self.options.groups or None,
            "topics": self.options.topics or None,
            "target": self.options.target or "retry",
            "group": self.options.for_group,
            "max_replays": self.options.max_replays,
            "topic_prefix": self.settings.topic_prefix,
            "options": self.options.spark.kafka,
        }

    def batch(self) -> None:
        spark, servers, options, screen = self.spark, self.settings.bootstrap_servers, self.options, self.screen
        screen.say(f"reading the dead letters for the plan in {self.folder}")
        plan = open_plan(spark, self.folder)
        if plan is None:
            plan = plan_replay(spark, servers, self.folder, **self._chosen)
        else:
            _check_same(plan, options)
        histograms = [histogram(spark, plan, column) for column in _SHOWN]
        result: dict[str, Any] = {"plan_id": plan.plan_id, "folder": self.folder}
        result |= {"where": plan.where, "target": plan.target, "counts": dict(plan.counts), "dry_run": options.dry_run}
        for one in histograms:
            names = (one.column, "status", "count")
            result["by_" + one.column] = [dict(zip(names, row, strict=True)) for row in one.rows]
        screen.pause()
        if not screen.as_json:
            print_plan(plan, result)
        if not options.dry_run and plan.to_send > 0 and not _ask(plan, options):
            return
        if not options.dry_run:
            how: dict[str, Any] = {"at_least_once": options.at_least_once, "options": options.spark.kafka}
            ran = run_replay(spark, servers, plan, rate=options.rate, progress=screen.show, **how)
            result |= {"sent": ran.sent, "before": ran.before}
        screen.say("reading what became of them")
        with explained(f"the report of plan {plan.plan_id} cannot be made"):
            report = replay_report(spark, servers, plan, options=options.spark.kafka)
            report.write.mode("overwrite").parquet(f"{self.folder}/report")
            counts = spark.read.parquet(f"{self.folder}/report").groupBy("outcome").count().collect()
        result["report"] = {row["outcome"]: row["count"] for row in counts}
        screen.pause()
        if screen.as_json:
            print_json(result)
        elif not options.dry_run:
            print_result(self.folder, result)

    def stream(self, name: str) -> None:
        options, folder = self.options, self.folder
        if options.dry_run:
            raise IllegalSetting("--stream and --dry-run: a stream goes on from its checkpoint; leave one of them out")
        if not confirm(f"Replay what came since the last run of {name}?", yes=options.yes):
            return
        with explained(f"the stream {name} stopped; run it again, it goes on where it was"):
            how = {"rate": options.rate, "at_least_once": options.at_least_once, **self._chosen}
            query = replay_stream(self.spark, self.settings.bootstrap_servers, folder, name, **how)
            query.awaitTermination()
        batches = sorted({progress.batchId for progress in query.recentProgress if progress.numInputRows > 0})
        plans = [plan for batch in batches if (plan := open_plan(self.spark, f"{folder}/plans/{batch}")) is not None]
        counts: Counter[str] = Counter()
        for plan in plans:
            counts.update(plan.counts)
        if self.screen.as_json:
            print_json({"stream": name, "folder": folder, "plans": [plan.plan_id for plan in plans], "counts": counts})
        else:
            title = f"stream {name}: {counted(len(plans), 'batch', 'batches')}"
            print_table(title, ("status", "dead letters"), sorted(counts.items()))


def _check_topics(settings: Settings, options: ReplayOptions) -> None:
    """Ask Kafka before Spark starts: its own answer takes a minute where no broker answers.

    Raises:
        KafkaNotReachable: no broker answered.
        TopicNotReady: a topic is missing.
    """
    names = settings.names
    needed = {names.delay(0): "run `reconsume topics apply`, or a scheduler"}
    needed |= {names.dead_letter(group): f"group {group!r} has no dead letters" for group in options.groups}
    needed |= dict.fromkeys(options.topics, "name a topic that is there")
    found = KafkaAdmin(settings.client_settings()).partitions(needed)
    for topic, remedy in needed.items():
        if topic not in found:
            raise TopicNotReady(f"topic {topic} does not exist: {remedy}")


def _check_same(plan: ReplayPlan, options: ReplayOptions) -> None:
    """The plan of a folder goes on as it was made."""
    for name, said, made in (("--where", options.where, plan.where), ("--to", options.target, plan.target)):
        if said is not None and said != made:
            raise IllegalSetting(
                f"{name} {said!r}: {plan.folder} has a plan that was made with {made!r}; "
                f"leave {name} out to go on with it, or choose another folder with --plan"
            )


def _ask(plan: ReplayPlan, options: ReplayOptions) -> bool:
    where = (
        "the origin topics, where every group sees them" if plan.target == "origin" else "their groups' retry topics"
    )
    return confirm(f"Send {counted(plan.to_send, 'dead letter')} to {where}?", yes=options.yes)


def _folder(options: ReplayOptions) -> str:
    folder = options.folder
    if folder is None:
        if options.stream is not None:
            raise IllegalSetting("--stream needs --plan: the folder where it finds its checkpoint the next time")
        folder = f"replay-{time.strftime('%Y%m%d-%H%M%S')}"
    return absolute(folder)


def print_plan(plan: ReplayPlan, result: Mapping[str, Any]) -> None:
    """What the plan sends, and what it leaves out."""
    print_line(f"plan {plan.plan_id} in {plan.folder}")
    rows = [(STATUSES[status], plan.counts[status]) for status in STATUSES if status in plan.counts]
    print_table("dead letters that the filter takes", ("what becomes of them", "dead letters"), rows)
    for column in _SHOWN:
        shown = [(row[column], row["count"]) for row in result["by_" + column] if row["status"] == SEND]
        if shown:
            print_table(f"to send, by {column}", (column, "dead letters"), shown)


def print_result(folder: str, result: Mapping[str, Any]) -> None:
    """What was sent, and where it is."""
    print_line(f"sent {result['sent']:,} now, {result['before']:,} before")
    print_table("where they are", ("outcome", "dead letters"), sorted(result["report"].items()))
    print_line(
        f"One row for each: {folder}/report (Parquet). Schedulers deliver what is sent; the same command with "
        "--plan of this folder shows where they are then, and sends nothing again."
    )


@dataclass
class _Screen:
    """What a person sees while Spark works: a line, or the bar of a run."""

    as_json: bool
    progress: Progress
    task: Any = None

    def say(self, line: str) -> None:
        if self.task is None:
            self.task = self.progress.add_task(line, total=None)
            self.progress.start()
        self.progress.update(self.task, description=line)

    def show(self, at: ReplayProgress) -> None:
        self.say("sending")
        self.progress.update(self.task, completed=at.before + at.sent, total=at.total)

    def pause(self) -> None:
        """Leave the screen to other output."""
        if self.task is not None:
            self.progress.stop()
            self.progress.remove_task(self.task)
            self.task = None


@contextmanager
def _shown(*, as_json: bool) -> Iterator[_Screen]:
    screen = _Screen(as_json, progress_bars(transient=True, quiet=as_json))
    try:
        yield screen
    finally:
        screen.pause()
