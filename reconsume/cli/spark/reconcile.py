"""`reconsume reconcile`: compare, print, write the report and the tables."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.partitioning import all_partitions
from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import exit_at_sigterm, stop_at_signals
from reconsume.cli.output import one_line, print_json, print_json_line, print_line, print_table
from reconsume.cli.progress import working
from reconsume.cli.spark.options import SparkChoice, absolute, check_file, check_folder
from reconsume.cli.spark.session import open_session, stopping
from reconsume.delay_levels.errors import (
    IllegalDelayLevels,
    IllegalSetting,
    KafkaLoginFailed,
    KafkaNotReachable,
    KafkaRefused,
    TopicNotReady,
)
from reconsume.delay_levels.human_text import counted
from reconsume.delay_levels.rules.durations import LONGEST_AGE_MS, format_duration, parse_duration
from reconsume.delay_levels.wire.names import RETRY_PREFIX, prefix_and_group
from reconsume.operations.points_in_time import parse_point_in_time
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.reconcile import (
    Committed,
    Extent,
    LedgerTaken,
    Reconciliation,
    Tolerances,
    conservation,
    first_findings,
    reconcile,
    summarise,
)
from reconsume.spark_connectors.report import LANGUAGES, SHOWN_OF_A_KIND, WORDS, render_report
from reconsume.spark_connectors.session import local_rows

logger = logging.getLogger(__name__)

_PRINTED: Final = 20
_TABLES: Final = ("ledger", "findings", "notes", "conservation", "summary")
"""The names of the tables in the folder of `--out`."""


@dataclass(frozen=True, slots=True)
class ReconcileOptions:
    """The options of the command line; None for missing ones."""

    report: Path | None
    language: str
    out: str | None
    ledger: str | None
    ledger_keep: str | None
    follow: str | None
    since: str | None
    until: str | None
    late: str
    delay_levels: str | None
    origins: bool
    spark: SparkChoice


def reconcile_topics(settings: Settings, options: ReconcileOptions, *, as_json: bool) -> bool:
    """Run the command; return whether there is no finding, with `--follow` in none of its runs.

    Raises:
        IllegalSetting: invalid options, or options that exclude each other.
        TopicNotReady: the installation has no topics.
    """
    if options.language not in LANGUAGES:
        raise IllegalSetting(f"--lang {options.language!r} is unknown; use {' or '.join(LANGUAGES)}")
    _check_folders(options)
    every = None if options.follow is None else _every(options)
    now = dt.datetime.now(dt.UTC)
    since, until = (_moment(name, text, now) for name, text in (("--since", options.since), ("--until", options.until)))
    late = dt.timedelta(milliseconds=_milliseconds("--late", options.late))
    exit_at_sigterm()
    # Before Spark starts, which takes a minute to report an unreachable broker.
    read_committed(Cluster(settings))
    with working("starting", quiet=as_json) as say:
        spark = open_session(say, options.spark, sends=False)
    with stopping(spark):
        if every is not None:
            return _follow(spark, settings, options, late, every, as_json=as_json)
        with (
            working("starting", quiet=as_json) as say,
            reconciled(spark, settings, options, late, since=since, until=until, progress=say) as found,
        ):
            say("counting and writing")
            summary, shown = found_in(found)
            _write(settings, options, found, summary, shown)
    if as_json:
        print_json(summary)
    else:
        print_summary(summary, shown, options.report)
    return not summary["findings"]


@contextmanager
def reconciled(
    spark: SparkSession, settings: Settings, options: ReconcileOptions, late: dt.timedelta, **more: Any
) -> Iterator[Reconciliation]:
    """Run a reconcile with these options; Spark caches its result within the block."""
    cluster = Cluster(settings)
    with explained("reconciling"):
        found = reconcile(
            spark,
            settings.bootstrap_servers,
            topic_prefix=settings.topic_prefix,
            committed=read_committed(cluster),
            extents=partial(read_extents, cluster),
            delay_levels=options.delay_levels,
            tolerances=Tolerances(late=late),
            origins=options.origins,
            ledger=None if options.ledger is None else absolute(options.ledger),
            ledger_keep=_ledger_keep(options),
            options=options.spark.kafka,
            **more,
        )
        with closing(found):
            yield found


def _ledger_keep(options: ReconcileOptions) -> dt.timedelta | None:
    """Return how long runs of the ledger are kept; None means forever."""
    if options.ledger_keep is None:
        return None
    if options.ledger is None:
        raise IllegalSetting("--ledger-keep needs --ledger FOLDER, whose old runs it removes")
    if (keep := _milliseconds("--ledger-keep", options.ledger_keep)) == 0:
        raise IllegalSetting("--ledger-keep 0s: write a longer time, such as 400d; leave it out to keep all runs")
    return dt.timedelta(milliseconds=keep)


def _check_folders(options: ReconcileOptions) -> None:
    """Refuse a report page that cannot be written, and output folders that would overwrite the ledger."""
    _ledger_keep(options)
    if options.report is not None:
        for file in _files_of(options.report):
            check_file("--report", file)
    if options.out is not None:
        check_folder("--out", options.out, options.spark)
    ledger, out = (
        None if folder is None else absolute(folder).removeprefix("file:") for folder in (options.ledger, options.out)
    )
    for name in _TABLES if out else ():
        if f"{ledger}/".startswith(f"{out}/{name}/"):
            raise IllegalSetting(
                f"--out {options.out} writes its table {name!r} over the ledger in {options.ledger}; "
                "choose another folder for one of them"
            )


def _files_of(report: Path) -> list[Path]:
    """Return the page, and beside an HTML page the file of its figures, from which the console lists it."""
    return [report, report.with_suffix(".json")] if report.suffix == ".html" else [report]


def _every(options: ReconcileOptions) -> float:
    """Return the seconds between runs."""
    others = {"--since": options.since, "--until": options.until, "--report": options.report, "--out": options.out}
    for name, value in {**others, "--origins": options.origins or None}.items():
        if value is not None:
            raise IllegalSetting(
                f"{name} cannot be used with --follow, which only writes its ledger; leave one of them out"
            )
    every = _milliseconds("--follow", options.follow or "")
    if every == 0:
        raise IllegalSetting("--follow 0s: write the interval between two runs, such as 5m")
    if options.ledger is None:
        raise IllegalSetting("--follow needs --ledger FOLDER, from which it continues after a restart")
    return every / 1_000


def _follow(
    spark: SparkSession,
    settings: Settings,
    options: ReconcileOptions,
    late: dt.timedelta,
    every: float,
    *,
    as_json: bool,
) -> bool:
    """Add runs to the ledger and print each, until SIGINT or SIGTERM; wait out errors that pass, after a first run."""
    # Pyspark's own handler would cancel jobs in the middle of a run; this ends after the run.
    fine, works, stopped = True, False, stop_at_signals()
    while not stopped.is_set():
        begun = time.monotonic()
        try:
            with reconciled(spark, settings, options, late) as found:
                summary, shown = found_in(found)
        except (KafkaNotReachable, TopicNotReady, LedgerTaken) as error:
            if not works or isinstance(error, KafkaLoginFailed):
                raise
            logger.warning("a run failed, the next one is in %s: %s", options.follow, one_line(str(error)))
        else:
            works = True
            if as_json:
                print_json_line(summary)
            else:
                print_line(run_line(summary, found.now))
                print_findings(one for one in shown if one["kind"] in summary["findings"])
            fine &= not summary["findings"]
        stopped.wait(max(0.0, begun + every - time.monotonic()))
    return fine


def found_in(found: Reconciliation) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures, and the first findings and notes."""
    summary = summarise(found.ledger, found.now, found.since)
    wanted = summary["findings"] or summary["notes"]
    return summary, first_findings(found.findings, found.notes, SHOWN_OF_A_KIND) if wanted else []


def read_committed(cluster: Cluster) -> Committed:
    """Return the committed offsets of the schedulers and of every group with a retry topic.

    Raises:
        TopicNotReady: the installation has no topics.
    """
    admin, names = cluster.admin, cluster.names
    topics = {topic: count for topic, count in admin.topics().items() if topic.startswith(names.prefix)}
    if not any(names.is_scheduled(topic) for topic in topics):
        raise TopicNotReady(
            f"{cluster.settings.bootstrap_servers} has no topics {names.prefix}DELAY.*; is topic_prefix right? "
            "create them: reconsume topics apply"
        )
    scheduler = names.scheduler_group
    # The schedulers' first: records that they have handled must then be found on other topics.
    read = {topic: count for topic, count in topics.items() if names.is_scheduled(topic) or names.is_parked(topic)}
    lanes = all_partitions(read)
    committed = {scheduler: admin.committed(scheduler, lanes)}
    for topic, count in topics.items():
        prefix, group = prefix_and_group(names.rocketmq_name(topic))
        if prefix == RETRY_PREFIX:
            try:
                committed[group] = admin.committed(group, [(topic, one) for one in range(count)])
            except KafkaRefused as error:
                logger.warning("offsets of group %s unknown: %s", group, error)
    return committed


def read_extents(cluster: Cluster, from_ms: int) -> dict[tuple[str, int], Extent]:
    """Return the extents of the topics' partitions from that moment on, 0 for all."""
    admin, names = cluster.admin, cluster.names
    ours = {topic: count for topic, count in admin.topics().items() if names.is_ours(topic)}
    places = [(topic, one) for topic, count in ours.items() for one in range(count)]
    firsts, ends = admin.end_offsets(places, earliest=True), admin.end_offsets(places)
    # Records left from before prove that none of that moment or later was deleted.
    begins = admin.offsets_at(places, from_ms) if from_ms > 0 else firsts
    return {at: Extent(firsts[at] if begins[at] <= firsts[at] else 0, ends[at]) for at in places}


def _write(
    settings: Settings,
    options: ReconcileOptions,
    found: Reconciliation,
    summary: Mapping[str, Any],
    shown: Sequence[Mapping[str, Any]],
) -> None:
    if options.report is not None:
        where = {"bootstrap_servers": settings.bootstrap_servers, "topic_prefix": settings.topic_prefix}
        page = render_report(summary, shown, language=options.language, **where)
        texts = (page, json.dumps(summary, ensure_ascii=False))
        for file, text in zip(_files_of(options.report), texts, strict=False):
            file.write_text(text, encoding="utf-8")
    if options.out is not None:
        folder = absolute(options.out)
        tables = (found.ledger, found.findings, found.notes, conservation(found.ledger))
        for name, table in zip(_TABLES, tables, strict=False):
            table.write.mode("overwrite").parquet(f"{folder}/{name}")
        text = json.dumps(summary, ensure_ascii=False)
        figures = local_rows(found.ledger.sparkSession, [{"value": text}], "value STRING")
        figures.write.mode("overwrite").text(f"{folder}/summary")


def print_summary(summary: Mapping[str, Any], shown: Sequence[Mapping[str, Any]], report: Path | None) -> None:
    """Print the figures, the first findings, and the verdict."""
    names = ("sent_back", "waiting", "moved", "dead", "quarantined", "dropped", "expired", "lost")
    titles = (WORDS["en"][name] for name in names)
    rows = [(one["group"] or "-", *(one[name] for name in names)) for one in summary["groups"]]
    print_table("what became of every send-back", ("group", *titles), rows)
    late = [
        (format_duration(one["delay_ms"]), one["sent_back"], *(f"{one[name]:,} ms" for name in ("p50", "p99", "max")))
        for one in summary["levels"]
        if "bars" in one
    ]
    if late:
        print_table("how late they were delivered", ("delay", "sent back", "p50", "p99", "max"), late)
    for name in ("findings", "notes"):
        if summary[name]:
            print_table(name, ("kind", "count"), summary[name].items())
    print_findings(one for one in shown if one["kind"] in summary["findings"])
    if report is not None:
        print_line(f"report: {report}")
    wrong = sum(summary["findings"].values())
    text = (
        f"{counted(wrong, 'finding')}: something is wrong"
        if wrong
        else "every failed message ended in exactly one state"
    )
    print_line(f"{counted(summary['attempts'], 'send-back')}: {text}")


def print_findings(findings: Iterable[Mapping[str, Any]]) -> None:
    """Print the first findings, with commands that show their records."""
    for one in islice(findings, _PRINTED):
        print_line(one_line(f"{one['kind']} {one['group']} {one['origin_message_id']} attempt {one['attempt']}"))
        for command in one["commands"]:
            print_line(f"  {command}")


def run_line(summary: dict[str, Any], run: dt.datetime) -> str:
    """Return the output of a run."""
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in summary["findings"].items())
    return (
        f"{run:%Y-%m-%d %H:%M:%S}Z {counted(summary['attempts'], 'send-back')}: {summary['moved']:,} delivered again, "
        f"{counted(summary['dead'], 'dead letter')}, {summary['waiting']:,} waiting; {kinds or 'nothing is wrong'}"
    )


def _moment(name: str, text: str | None, now: dt.datetime) -> dt.datetime | None:
    if text is None:
        return None
    return dt.datetime.fromtimestamp(parse_point_in_time(name, text, now.timestamp() * 1000) / 1000, dt.UTC)


def _milliseconds(name: str, text: str) -> int:
    """Return the milliseconds of a duration option."""
    try:
        return parse_duration(text, LONGEST_AGE_MS)
    except IllegalDelayLevels:
        raise IllegalSetting(f"{name} {text!r}: write a duration such as 30s or 5m, at most 36500d") from None
