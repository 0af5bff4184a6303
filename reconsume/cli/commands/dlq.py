"""`reconsume dlq`: list, show, export, resend and resolve a group's dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.schema_registry import SchemaRegistry
from reconsume.bridge.process.clock import now_ms
from reconsume.cli.actions.letter_jobs import letter_edit, run_as_job
from reconsume.cli.commands.dead_letter_rows import cut, decoded, state_row
from reconsume.cli.common import ExportFile, Here, Yes, confirm, exit_at_sigterm, on_kafka, shown_text, user_name
from reconsume.cli.output import opened, print_json, print_line, print_report, print_table, tell
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import counted, json_text, pair
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.jobs.job_records import TARGETS, DeadLetterFilter
from reconsume.operations.dead_letter_index.current import current_page
from reconsume.operations.dead_letter_states import StatesReader, state_name
from reconsume.operations.dead_letters import DeadLetterRecord, Page, read_one, read_page
from reconsume.operations.jobs.letter_files import FORMATS, letter_file, moment, summary
from reconsume.operations.jobs.selection import JobDraft
from reconsume.operations.points_in_time import parse_point_in_time
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import Changed, reopen, resolve

app = typer.Typer()

_LIST: Final = "reconsume dlq list"
_EXPORT_PAGE: Final = 1_000


Group = Annotated[str, typer.Argument(metavar="GROUP", help="a consumer group")]


def _wanted(
    text: Annotated[
        str | None, typer.Option(help="text in the cause, the exception's class or the stack trace")
    ] = None,
    key: Annotated[str | None, typer.Option(help="the record's key")] = None,
    message_id: Annotated[
        str | None, typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="id of the first copy: topic/partition/offset")
    ] = None,
    origin_topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="the topic of the first copy")] = None,
    with_header: Annotated[str | None, typer.Option(metavar="NAME=TEXT", help="a header and its text, exactly")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="dead since this time: 2026-11-22 10:00 (UTC), or an age: 2h")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="dead before this time")] = None,
    state: Annotated[str | None, typer.Option(help=f"state: {', '.join(STATES).lower()}")] = None,
) -> DeadLetterFilter:
    if state is not None and state.upper() not in STATES:
        raise IllegalSetting(f"--state {state!r}: use {', '.join(STATES).lower()}")
    if with_header is not None:
        pair("--with-header", with_header, "NAME=TEXT, such as tenant=acme")
    now = now_ms()
    since_ms, until_ms = (
        None if said is None else parse_point_in_time(option, said, now)
        for option, said in (("--since", since), ("--until", until))
    )
    return DeadLetterFilter(
        text=text,
        key=key,
        message_id=message_id,
        origin_topic=origin_topic,
        since_ms=since_ms,
        until_ms=until_ms,
        state=None if state is None else state.upper(),
        header=with_header,
    )


@on_kafka(app, "list", wanted=_wanted)
def list_letters(
    here: Here,
    wanted: DeadLetterFilter,
    group: Group,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="maximum number of rows")] = 50,
    before: Annotated[str | None, typer.Option(metavar="WHERE", help="continue where a list ended")] = None,
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
    looked = f"{len(page.records):,} of {page.looked_at:,} dead letters that were read"
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
        typer.Option(
            envvar="RECONSUME_SCHEMA_REGISTRY_URL",
            metavar="URL",
            help="URL of a schema registry, for decoding key and value",
        ),
    ] = None,
) -> None:
    """Show one dead letter: cause, time, headers and value."""
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
    wanted: DeadLetterFilter,
    group: Group,
    form: Annotated[str, typer.Option("--format", help="jsonl, csv or parquet")] = "jsonl",
    file: ExportFile = None,
) -> None:
    """Write a group's dead letters to a file; they stay on their topic. The count goes to standard error."""
    if form not in FORMATS:
        raise IllegalSetting(f"--format {form!r}: use {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    count = 0
    exit_at_sigterm()  # a killed export would leave a file that looks complete
    with opened(file) as out:
        letters = letter_file(form, out, file)
        for one in _all(here.cluster, group, wanted):
            letters.write(one)
            count += 1
        letters.close()
    # Standard output may be the file.
    exported = {"group": group, "exported": count}
    tell(json_text(exported) if here.as_json else f"{counted(count, 'dead letter')} of {group}")


Records = Annotated[list[str] | None, typer.Argument(metavar="PARTITION/OFFSET...")]
All = Annotated[
    bool, typer.Option("--all", help="all dead letters that match the filter; without --state the open ones")
]
Rate = Annotated[int | None, typer.Option(min=1, help="maximum records per second")]
Detach = Annotated[bool, typer.Option("--detach", help="leave the job to a runner: `reconsume jobs run`")]


@on_kafka(app, "resend", wanted=_wanted)
def resend_letters(
    here: Here,
    wanted: DeadLetterFilter,
    group: Group,
    records: Records = None,
    all_of_them: All = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be sent, and send nothing")] = False,
    max_replays: Annotated[int, typer.Option(min=1, help="leave out messages that were resent this often")] = 2,
    yes: Yes = False,
    to: Annotated[str, typer.Option(help="retry: the group's retry topic; origin: the origin topic")] = "retry",
    rate: Rate = None,
    why: Annotated[str, typer.Option(help="reason, shown with the dead letter")] = "",
    value_file: Annotated[Path | None, typer.Option(help="for one record: file with the value to send")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="for one record: set this header; NAME= removes it")
    ] = None,
    detach: Detach = False,
) -> None:
    """Resend dead letters, each once, as a job; Ctrl-C pauses it."""
    places = _places(records, wanted, all_of_them=all_of_them)
    if to not in TARGETS:
        raise IllegalSetting(f"--to {to!r}: use {' or '.join(TARGETS)}")
    draft = JobDraft(
        *("resend", group, wanted, places, rate, max_replays),
        target=to,
        edit=letter_edit(value_file, header or ()),
    )
    question = "Send {} of " + f"{group} {'to the origin topic' if to == 'origin' else 'again'}?"
    run_as_job(here, draft, question, why=why, dry_run=dry_run, yes=yes, detach=detach)


@on_kafka(app, "resolve", wanted=_wanted)
def resolve_letters(
    here: Here,
    wanted: DeadLetterFilter,
    group: Group,
    why: Annotated[str, typer.Option(help="reason, shown with the dead letter")],
    records: Records = None,
    all_of_them: All = False,
    yes: Yes = False,
    detach: Detach = False,
) -> None:
    """Resolve open dead letters that need no resend, with a reason; they stay on their topic."""
    places = _places(records, wanted, all_of_them=all_of_them)
    if places is None or detach:
        draft = JobDraft("resolve", group, wanted, places)
        run_as_job(here, draft, "Resolve {} of " + f"{group}?", why=why, dry_run=False, yes=yes, detach=detach)
        return
    confirm(f"Resolve {counted(len(places), 'dead letter')} of {group}?", yes=yes)
    _tell_changed(
        group, resolve(here.cluster, group, places, by=user_name(), why=why), "resolved", as_json=here.as_json
    )


@on_kafka(app, "reopen")
def reopen_letters(here: Here, group: Group, records: Records = None) -> None:
    """Reopen resolved dead letters."""
    places = _places(records, DeadLetterFilter(), all_of_them=False) or []
    _tell_changed(group, reopen(here.cluster, group, places), "opened", as_json=here.as_json)


def _places(
    records: Sequence[str] | None, wanted: DeadLetterFilter, *, all_of_them: bool
) -> list[RecordAddress] | None:
    """Return the named places; None for all that the filter selects."""
    if bool(records) == all_of_them:
        raise IllegalSetting("name dead letters as PARTITION/OFFSET, or pass --all, with or without a filter")
    if records and wanted != DeadLetterFilter():
        raise IllegalSetting(
            "named dead letters need no filter; leave out the filter, or pass --all in place of the names"
        )
    return [RecordAddress.parse(one, _LIST) for one in records] if records else None


def _all(cluster: Cluster, group: str, wanted: DeadLetterFilter) -> Iterator[DeadLetterRecord]:
    before: str | None = None
    topic = cluster.names.dead_letter(group)
    states = StatesReader(cluster, wanted=lambda letter: letter.topic == topic)
    while True:
        page: Page = read_page(cluster, group, wanted, before=before, limit=_EXPORT_PAGE, states=states)
        yield from page.records
        if page.older is None:
            return
        before = page.older


def _tell_changed(group: str, done: Sequence[Changed], word: str, *, as_json: bool) -> None:
    if as_json:
        records = [{"record": str(one.record.place), "before": one.before, "changed": one.is_changed} for one in done]
        print_json({"group": group, "records": records})
        return
    counts = Counter(word if one.is_changed else f"left as they were: {one.before.lower()}" for one in done)
    for told, count in counts.items():
        print_line(f"{count:>8,}  {told}")
