"""`reconsume dlq`: look at a group's dead letters, take them away as a file, send some again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.schema_registry import SchemaRegistry
from reconsume.bridge.process.clock import now_ms
from reconsume.cli.commands.dead_letter_rows import COLUMNS, content, cut, decoded, moment, state_row, summary
from reconsume.cli.common import Here, Yes, confirm, on_kafka, shown_text, user_name
from reconsume.cli.output import (
    counted,
    csv_writer,
    json_line_writer,
    opened,
    print_json,
    print_line,
    print_report,
    print_table,
    tell,
)
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import json_text
from reconsume.delay_levels.wire.dead_letter_states import OPEN, STATES
from reconsume.operations.dead_letter_index.current import current_page
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import DeadLetterRecord, Filter, Page, read_one, read_page
from reconsume.operations.points_in_time import parse_point_in_time
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import MOST, REASONS, SEND, ResendVerdict, new_replay_id, plan_resend, resend
from reconsume.operations.resolve import Changed, reopen, resolve

app = typer.Typer()

_LIST: Final = "reconsume dlq list"
_EXPORT_PAGE: Final = 1_000


Group = Annotated[str, typer.Argument(metavar="GROUP", help="a consumer group")]


def _wanted(
    text: Annotated[str | None, typer.Option(help="in the cause, the exception's class or the stack trace")] = None,
    key: Annotated[str | None, typer.Option(help="the record's key")] = None,
    message_id: Annotated[str | None, typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="the first copy")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="dead since then: 2026-11-22 10:00 (UTC), or how long ago: 2h")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="dead before then")] = None,
    state: Annotated[str | None, typer.Option(help=f"what became of it: {', '.join(STATES).lower()}")] = None,
) -> Filter:
    if state is not None and state.upper() not in STATES:
        raise IllegalSetting(f"--state {state!r}: use {', '.join(STATES).lower()}")
    now = now_ms()
    since_ms, until_ms = (
        None if said is None else parse_point_in_time(option, said, now)
        for option, said in (("--since", since), ("--until", until))
    )
    return Filter(text, key, message_id, since_ms, until_ms, None if state is None else state.upper())


@on_kafka(app, "list", wanted=_wanted)
def list_letters(
    here: Here,
    wanted: Filter,
    group: Group,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="so many at most")] = 50,
    before: Annotated[str | None, typer.Option(metavar="WHERE", help="go on where a list ended")] = None,
) -> None:
    """List a group's dead letters, the newest first: from a console's index on this machine if it is up to date."""
    page, from_index = current_page(here.cluster, group, wanted, before=before, limit=limit)
    if here.as_json:
        records = [summary(one) for one in page.records]
        print_json({"records": records, "looked_at": page.looked_at, "older": page.older, "from_index": from_index})
        return
    rows = [
        (
            str(one.place),
            state_name(one.state).lower(),
            moment(one.stored_ms) or "",
            one.letter.origin_message_id,
            one.letter.retries,
            cut(" ".join(filter(None, (one.letter.exception_class, one.letter.cause)))),
        )
        for one in page.records
    ]
    print_table(f"dead letters of {group}", ("record", "state", "dead since", "message id", "retries", "why"), rows)
    looked = f"{len(page.records):,} of {page.looked_at:,} that were looked at"
    if from_index:
        looked = f"{len(page.records):,} of {page.found or 0:,}, from the index"
    print_line(f"{looked}{'' if page.older is None else f'; older ones: --before {page.older}'}")


@on_kafka(app, "show")
def show_letter(
    here: Here,
    group: Group,
    record: Annotated[str, typer.Argument(metavar="PARTITION/OFFSET")],
    schema_registry: Annotated[
        str | None,
        typer.Option(envvar="RECONSUME_SCHEMA_REGISTRY_URL", metavar="URL", help="decode key and value by its schemas"),
    ] = None,
) -> None:
    """Show one dead letter: why, since when, its headers and its value."""
    schemas = None if schema_registry is None else SchemaRegistry(schema_registry)
    one = read_one(here.cluster, group, RecordAddress.parse(record, _LIST))
    letter = one.letter
    report = (
        summary(one)
        | state_row(one.state)
        | {
            "born": moment(letter.born_ms),
            "first_failure": moment(letter.first_failure_ms),
            "replay_id": letter.replay_id,
            "malformed": list(letter.malformed),
            "stacktrace": letter.stacktrace,
            "headers": [[name, shown_text(value)] for name, value in one.headers],
            "key": shown_text(one.key),
            "value_bytes": len(one.value or b""),
            "value": shown_text(one.value),
        }
        | decoded("key", one.key, schemas)
        | decoded("value", one.value, schemas)
    )
    print_report(report, as_json=here.as_json)


@on_kafka(app, "export", wanted=_wanted)
def export_letters(
    here: Here,
    wanted: Filter,
    group: Group,
    form: Annotated[str, typer.Option("--format", help="jsonl or csv")] = "jsonl",
    file: Annotated[Path | None, typer.Option(help="a new file; default: standard output")] = None,
) -> None:
    """Write a group's dead letters to a file, whole; they stay where they are. How many is said on standard error."""
    if form not in ("jsonl", "csv"):
        raise IllegalSetting(f"--format {form!r}: use jsonl or csv; for Parquet see read_dead_letters in docs/spark.md")
    count = 0
    with opened(file) as out:
        write = csv_writer(out, COLUMNS) if form == "csv" else json_line_writer(out)
        for one in _all(here.cluster, group, wanted):
            write(summary(one) | content(one))
            count += 1
    # Standard output may be the file.
    exported = {"group": group, "exported": count}
    tell(json_text(exported) if here.as_json else f"{counted(count, 'dead letter')} of {group}")


Records = Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")]
All = Annotated[bool, typer.Option("--all", help="all open ones that the filter takes, 10,000 at most")]


@on_kafka(app, "resend", wanted=_wanted)
def resend_letters(
    here: Here,
    wanted: Filter,
    group: Group,
    records: Records = None,
    all_of_them: All = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="tell what would be sent, and send nothing")] = False,
    max_replays: Annotated[int, typer.Option(min=1, help="a message that was sent again so often is left out")] = 2,
    yes: Yes = False,
) -> None:
    """Send dead letters again to their group, each once; for more than 10,000 see `reconsume replay`."""
    cluster, as_json = here
    chosen = _chosen(cluster, group, records, wanted, all_of_them=all_of_them)
    plan = plan_resend(cluster, group, chosen, max_replays=max_replays) if chosen else []
    count = sum(one.status == SEND for one in plan)
    only_told = dry_run or not count
    if only_told or not as_json:
        _tell(group, plan, None, as_json=as_json)
    if only_told or not confirm(f"Send {counted(count, 'dead letter')} of {group} again?", yes=yes):
        return
    replay_id = new_replay_id("dlq", now_ms())
    done = resend(cluster, group, chosen, replay_id=replay_id, by=user_name(), max_replays=max_replays)
    _tell(group, done, replay_id, as_json=as_json)


@on_kafka(app, "resolve", wanted=_wanted)
def resolve_letters(
    here: Here,
    wanted: Filter,
    group: Group,
    why: Annotated[str, typer.Option(help="for those who look later")],
    records: Records = None,
    all_of_them: All = False,
    yes: Yes = False,
) -> None:
    """Resolve open dead letters that need no resend, with a reason; they stay where they are."""
    chosen = _chosen(here.cluster, group, records, wanted, all_of_them=all_of_them)
    if chosen and not confirm(f"Resolve {counted(len(chosen), 'dead letter')} of {group}?", yes=yes):
        return
    done = resolve(here.cluster, group, chosen, by=user_name(), why=why) if chosen else []
    _tell_changed(group, done, "resolved", as_json=here.as_json)


@on_kafka(app, "reopen")
def reopen_letters(here: Here, group: Group, records: Records = None) -> None:
    """Open dead letters again that were resolved."""
    chosen = _chosen(here.cluster, group, records, Filter(), all_of_them=False)
    _tell_changed(group, reopen(here.cluster, group, chosen), "opened", as_json=here.as_json)


def _chosen(
    cluster: Cluster, group: str, records: Sequence[str] | None, wanted: Filter, *, all_of_them: bool
) -> list[RecordAddress]:
    """Those that are named, or all open ones that the filter takes."""
    if bool(records) == all_of_them:
        raise IllegalSetting("name the dead letters as PARTITION/OFFSET, or say --all, with or without a filter")
    if records and wanted != Filter():
        raise IllegalSetting("a filter goes with --all, not with dead letters that are named")
    if records:
        return [RecordAddress.parse(one, _LIST) for one in records]
    return _places(cluster, group, replace(wanted, state=wanted.state or OPEN))


def _places(cluster: Cluster, group: str, wanted: Filter) -> list[RecordAddress]:
    found = []
    for one in _all(cluster, group, wanted):
        found.append(one.place)
        if len(found) > MOST:
            raise IllegalSetting(
                f"more than {MOST:,} dead letters of {group!r} are wanted: narrow the filter, or use `reconsume replay "
                f"--group {group}`, which sends as many as there are, at a rate"
            )
    return found


def _all(cluster: Cluster, group: str, wanted: Filter) -> Iterator[DeadLetterRecord]:
    before: str | None = None
    while True:
        page: Page = read_page(cluster, group, wanted, before=before, limit=_EXPORT_PAGE)
        yield from page.records
        if page.older is None:
            return
        before = page.older


def _tell(group: str, verdicts: Sequence[ResendVerdict], replay_id: str | None, *, as_json: bool) -> None:
    """What was sent, or would be."""
    if as_json:
        records = [
            {"record": str(one.record.place), "message_id": one.record.letter.origin_message_id, "status": one.status}
            for one in verdicts
        ]
        print_json({"group": group, "replay_id": replay_id, "records": records})
        return
    counts = Counter(one.status for one in verdicts)
    if not counts:
        print_line(f"group {group} has no such open dead letters")
    for status, reason in REASONS.items():
        if counts[status]:
            said = f"sent again, REPLAY_ID {replay_id}" if status == SEND and replay_id else reason
            print_line(f"{counts[status]:>8,}  {said}")


def _tell_changed(group: str, done: Sequence[Changed], word: str, *, as_json: bool) -> None:
    if as_json:
        records = [{"record": str(one.record.place), "before": one.before, "changed": one.is_changed} for one in done]
        print_json({"group": group, "records": records})
        return
    if not done:
        print_line(f"group {group} has no such open dead letters")
    counts = Counter(word if one.is_changed else f"left as they were: {one.before.lower()}" for one in done)
    for told, count in counts.items():
        print_line(f"{count:>8,}  {told}")
