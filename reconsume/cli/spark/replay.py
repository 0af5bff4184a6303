"""`reconsume replay`: plan, show, ask, run, report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import confirm, exit_at_sigterm
from reconsume.cli.output import print_json, print_line, print_table
from reconsume.cli.progress import working
from reconsume.cli.spark.options import SparkChoice, absolute, check_folder
from reconsume.cli.spark.session import open_session, stopping
from reconsume.delay_levels.errors import IllegalSetting, TopicNotReady
from reconsume.delay_levels.human_text import counted
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
from reconsume.spark_connectors.replay.chunks import check_rate
from reconsume.spark_connectors.replay.plan import PLAN_OPTIONS
from reconsume.spark_connectors.replay.selection import SEND, STATUSES
from reconsume.spark_connectors.replay.stream import plans_of
from reconsume.spark_connectors.session import literal_path

_SHOWN: Final = ("cause", "group", "hour")


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of the command line; None for missing ones.

    Attributes:
        which: arguments of `plan_replay` and `replay_stream` that select dead letters and targets.
        how: arguments of `run_replay` and `replay_stream` about the sending.
    """

    folder: str | None
    which: Mapping[str, Any]
    how: Mapping[str, Any]
    dry_run: bool
    yes: bool
    stream: str | None
    spark: SparkChoice


def replay(settings: Settings, options: ReplayOptions, *, as_json: bool) -> None:
    """Run the command.

    Raises:
        IllegalSetting: options contradict each other, or the plan in the folder.
    """
    exit_at_sigterm()
    folder = _folder(options)
    check_folder("--plan", folder, options.spark)
    check_rate(options.how.get("rate"))
    which = {name: value for name, value in options.which.items() if value not in (None, [])}
    which["topic_prefix"] = settings.topic_prefix
    of_topics = _check_topics(settings, which.get("groups", ()), which.get("topics", ()))
    how = {**options.how, **of_topics, "options": options.spark.kafka}
    with working("starting", quiet=as_json) as say:
        spark = open_session(say, options.spark)
    with stopping(spark):
        run = _Replay(spark, settings.bootstrap_servers, folder, which, how, options, as_json)
        run.batch() if options.stream is None else run.stream(options.stream)


@dataclass(frozen=True, slots=True)
class _Replay:
    """An execution of the command."""

    spark: SparkSession
    servers: str
    folder: str
    which: dict[str, Any]
    how: dict[str, Any]
    options: ReplayOptions
    as_json: bool

    def batch(self) -> None:
        spark, servers, options, kafka = self.spark, self.servers, self.options, self.options.spark.kafka
        with (
            working(f"reading the dead letters for the plan in {self.folder}", quiet=self.as_json),
            explained(f"the plan in {self.folder} cannot be read"),
        ):
            plan = open_plan(spark, self.folder)
            if plan is None:
                plan = plan_replay(spark, servers, self.folder, options=kafka, **self.which)
            else:
                plan.check_same(self.which, {**PLAN_OPTIONS, "topic_prefix": "topic_prefix"})
            result: dict[str, Any] = {"plan_id": plan.plan_id, "folder": self.folder, "where": plan.where}
            result |= {"target": plan.target, "counts": dict(plan.counts), "dry_run": options.dry_run}
            for column in _SHOWN:
                names = (column, "status", "count")
                rows = histogram(spark, plan, column).rows
                result["by_" + column] = [dict(zip(names, row, strict=True)) for row in rows]
        if not self.as_json:
            print_plan(plan, result)
        if not options.dry_run and plan.to_send > 0:
            _ask(plan, options)
        with working("preparing", quiet=self.as_json) as say:
            if not options.dry_run:
                ran = run_replay(spark, servers, plan, progress=lambda at: say(_progress(at)), **self.how)
                result |= {"sent": ran.sent, "before": ran.before}
            say("reading the outcomes")
            with explained(f"the report of plan {plan.plan_id} cannot be made"):
                report = replay_report(spark, servers, plan, options=kafka)
                report.write.mode("overwrite").parquet(f"{self.folder}/report")
                counts = spark.read.parquet(literal_path(f"{self.folder}/report")).groupBy("outcome").count().collect()
        result["report"] = {row["outcome"]: row["count"] for row in counts}
        if self.as_json:
            print_json(result)
        elif not options.dry_run:
            print_result(self.folder, result)

    def stream(self, name: str) -> None:
        options, folder = self.options, self.folder
        if options.dry_run:
            raise IllegalSetting(
                "--stream cannot be used with --dry-run, because a stream moves its checkpoint; leave one of them out"
            )
        confirm(f"Replay the dead letters since the last run of {name}?", yes=options.yes)
        with explained(f"the stream {name} stopped"):
            query = replay_stream(self.spark, self.servers, folder, name, **self.which, **self.how)
            query.awaitTermination()
        plans = plans_of(self.spark, folder, query)
        counts = sum((Counter(one.counts) for one in plans), Counter[str]())
        if self.as_json:
            print_json({"stream": name, "folder": folder, "plans": [plan.plan_id for plan in plans], "counts": counts})
        else:
            title = f"stream {name}: {counted(len(plans), 'batch', 'batches')}"
            print_table(title, ("status", "dead letters"), sorted(counts.items()))


def _progress(at: ReplayProgress) -> str:
    return f"sending: {at.before + at.sent:,} of {at.total:,}"


def _check_topics(settings: Settings, groups: Iterable[str], topics: Iterable[str]) -> dict[str, Any]:
    """Ask Kafka before Spark starts, which takes a minute to report an unreachable broker.

    Returns:
        Arguments of a run: the partitions of `DELAY.0s` for floods, and how long it keeps records.

    Raises:
        KafkaNotReachable: no broker answered.
        TopicNotReady: a topic is missing.
    """
    names = settings.names
    lane = names.delay(0)
    needed = {lane: "run `reconsume topics apply`, or a scheduler"}
    needed |= {names.dead_letter_states: "run `reconsume topics apply`"}
    needed |= {names.dead_letter(group): f"group {group!r} has no dead letters" for group in groups}
    needed |= dict.fromkeys(topics, "name a topic that is there")
    cluster = Cluster(settings)
    found = cluster.admin.partitions(needed)
    for topic, remedy in needed.items():
        if topic not in found:
            raise TopicNotReady(f"topic {topic} does not exist: {remedy}")
    published = read_groups(cluster)
    retention_days = (published.system.topic_settings or settings.topics).retention_days
    return {"bulk_partitions": range(published.normal_partitions, found[lane]), "retention_days": retention_days}


def _ask(plan: ReplayPlan, options: ReplayOptions) -> None:
    where = (
        "the origin topics, where every group sees them" if plan.target == "origin" else "their groups' retry topics"
    )
    confirm(f"Send {counted(plan.to_send, 'dead letter')} to {where}?", yes=options.yes)


def _folder(options: ReplayOptions) -> str:
    folder = options.folder
    if folder is None:
        if options.stream is not None:
            raise IllegalSetting("--stream needs --plan FOLDER, which keeps its checkpoint from run to run")
        folder = f"replay-{time.strftime('%Y%m%d-%H%M%S')}"
    return absolute(folder)


def print_plan(plan: ReplayPlan, result: Mapping[str, Any]) -> None:
    """Print the records that the plan sends, and those that it leaves out."""
    print_line(f"plan {plan.plan_id} in {plan.folder}")
    rows = [(STATUSES[status], plan.counts[status]) for status in STATUSES if status in plan.counts]
    print_table("dead letters that the filter takes", ("what becomes of them", "dead letters"), rows)
    for column in _SHOWN:
        shown = [(row[column], row["count"]) for row in result["by_" + column] if row["status"] == SEND]
        if shown:
            print_table(f"to send, by {column}", (column, "dead letters"), shown)


def print_result(folder: str, result: Mapping[str, Any]) -> None:
    """Print the sent records, and where they are."""
    print_line(f"sent {result['sent']:,} now, {result['before']:,} before")
    print_table("where they are", ("outcome", "dead letters"), sorted(result["report"].items()))
    print_line(
        f"Report: {folder}/report (Parquet), one row for each dead letter. Schedulers deliver the sent records; to see "
        f"where they are then, run the same command with --plan {folder}: it sends nothing twice."
    )
