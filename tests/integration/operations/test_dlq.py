"""`reconsume dlq`: dead letters are found, shown, taken away as a file, and sent again, each once."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconsume.bridge.kafka.client_settings import transactional_settings
from reconsume.bridge.kafka.clients import close_producer, make_producer
from reconsume.bridge.writing import transactions
from reconsume.bridge.writing.transactions import Transactions
from reconsume.cli.commands import dlq
from reconsume.cli.commands.dlq import export_letters, list_letters, resend_letters, show_letter
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting, RecordNotFound, TopicNotReady
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.properties import Header
from reconsume.operations import dead_letters
from reconsume.operations.dead_letter_states import StatesReader
from reconsume.operations.dead_letters import Page, read_one, read_page
from reconsume.operations.jobs import run as run_module
from reconsume.operations.jobs.service import show
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import resolve
from tests.integration.installation import LATER, SUCCESS, Deliveries, Installation, installation
from tests.support.resends import planned, resend
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

USER: list[Header] = [("user", b"\x00\xff"), ("user", None)]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def headers_of(group: str, number: int, **more: str) -> list[Header]:
    ours = {
        "RETRY_TOPIC": "flights",
        "ORIGIN_MESSAGE_ID": f"flights/0/{number}",
        "RECONSUME_TIME": "17",
        "REAL_TOPIC": f"%DLQ%{group}",
        "__dlq.errors.message": "timeout" if number % 2 else "no dep_time",
    } | more
    return [*USER, *((name, text.encode()) for name, text in ours.items())]


def with_dead_letters(here: Installation, count: int, partitions: int = 1) -> str:
    """A group of its own."""
    group = here.unique("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, partitions, -1, {"message.timestamp.type": "LogAppendTime"})
    producer = here.producer()
    for number in range(count):
        producer.produce(
            topic,
            b"value-%d" % number,
            b"key-%d" % number,
            number % partitions,
            headers=headers_of(group, number),  # type: ignore[arg-type]
        )
    assert producer.flush(PATIENCE) == 0
    producer.close()
    return group


def pages(here: Installation, group: str, wanted: DeadLetterFilter | None = None, limit: int = 50) -> list[Page]:
    found = [read_page(here.cluster, group, wanted, limit=limit)]
    while found[-1].older is not None:
        found.append(read_page(here.cluster, group, wanted, before=found[-1].older, limit=limit))
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_all_are_listed_once_page_by_page_the_newest_first(here: Installation, partitions: int) -> None:
    group = with_dead_letters(here, 1_203, partitions)
    found = pages(here, group, limit=500)
    records = [record for page in found for record in page.records]
    assert len(records) == 1_203
    assert {one.letter.origin_message_id for one in records} == {f"flights/0/{number}" for number in range(1_203)}
    assert [one.at for one in records] == sorted((one.at for one in records), reverse=True)
    assert [len(page.records) for page in found if page.records] == [500, 500, 203]


def test_a_page_of_large_ones_is_short_and_too_many_of_them_are_not_read_at_once(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = here.unique("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    for number in range(40):
        here.produce(topic, b"x" * 900_000, headers=headers_of(group, number))
    monkeypatch.setattr(dead_letters, "_PAGE_BYTES", 10_000_000)
    found = pages(here, group)
    assert [len(page.records) for page in found if page.records] == [12, 12, 12, 4]
    assert len({one.letter.origin_message_id for page in found for one in page.records}) == 40
    places = [one.place for page in found for one in page.records]
    monkeypatch.setattr(dead_letters, "_THESE_BYTES", 20_000_000)
    with pytest.raises(IllegalSetting, match="have more than 19 MiB; name fewer"):
        resolve(here.cluster, group, places, by="alice", why="x")
    assert planned(here.cluster, group, places) == ["send"] * 40


def test_a_filter_takes_what_it_says_and_tells_how_many_it_looked_at(here: Installation) -> None:
    group = with_dead_letters(here, 30)
    [page] = pages(here, group, DeadLetterFilter(text="TIMEOUT"))
    assert (len(page.records), page.looked_at) == (15, 30)
    [page] = pages(here, group, DeadLetterFilter(key="key-7"))
    assert [one.value for one in page.records] == [b"value-7"]
    [page] = pages(here, group, DeadLetterFilter(message_id="flights/0/8"))
    [record] = page.records
    assert record.headers[:2] == USER
    assert pages(here, group, DeadLetterFilter(since_ms=record.stored_ms + 3_600_000))[0].records == []
    assert len(pages(here, group, DeadLetterFilter(since_ms=record.stored_ms - 3_600_000))[0].records) == 30
    assert pages(here, group, DeadLetterFilter(until_ms=record.stored_ms - 3_600_000))[0].records == []


def test_one_is_sent_again_once_comes_to_the_listener_and_dies_again_until_it_is_capped(here: Installation) -> None:
    group = here.unique("g")
    topic = here.topic(group)
    listener = Deliveries(lambda _messages, _context: LATER)
    here.produce(topic, b"poor thing", key=b"k", headers=USER)
    cluster = here.cluster

    def dead() -> list[RecordAddress]:
        return [RecordAddress(one.partition, one.offset) for one in here.dead_letters(group)]

    consumer = here.consumer(group, topic, listener, max_reconsume_times=1)
    with consumer:
        wait_until(lambda: len(dead()) == 1, "it is dead")
        [first] = dead()
        one, outcomes = resend(cluster, group, [first])
        assert outcomes == ["sent"]
        assert resend(cluster, group, [first])[1] in (["replayed"], ["superseded"])
        wait_until(lambda: len(dead()) == 2, "it is dead again")
        assert planned(cluster, group, dead()) == ["superseded", "send"]
        three, outcomes = resend(cluster, group, dead())
        assert outcomes == ["superseded", "sent"]
        wait_until(lambda: len(dead()) == 3, "it is dead once more")
        assert resend(cluster, group, dead())[1] == ["superseded", "superseded", "capped"]
        assert planned(cluster, group, dead()[2:], max_replays=3) == ["send"]
    assert [letter["REPLAY_ID"] for letter in here.dead_letters(group)] == [None, one, three]
    # Two deliveries in each of its three lives.
    assert [times for _, times in listener.seen] == [0, 1] * 3


def test_what_is_sent_again_is_as_it_was(here: Installation) -> None:
    group = with_dead_letters(here, 4)
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, here.topic(group), listener):
        replay_id, outcomes = resend(here.cluster, group, [RecordAddress(0, 1), RecordAddress(0, 3)])
        assert outcomes == ["sent", "sent"]
        wait_until(lambda: len(listener.messages) == 2, "both come to the listener")
    assert {one.body for one in listener.messages} == {b"value-1", b"value-3"}
    copies = here.retries(group)
    assert {one["ORIGIN_MESSAGE_ID"] for one in copies} == {"flights/0/1", "flights/0/3"}
    for one in copies:
        assert one.headers[:2] == USER
        assert (one["RECONSUME_TIME"], one["REPLAY_ID"], one["REPLAY_TIMES"]) == ("0", replay_id, "1")
        assert not [name for name, _ in one.headers if name.startswith("__dlq.errors")]


def test_of_those_who_resend_at_once_each_dead_letter_goes_once(here: Installation) -> None:
    group = with_dead_letters(here, 40)
    places = [RecordAddress(0, number) for number in range(40)]

    with ThreadPoolExecutor(4) as pool:
        names = list(pool.map(lambda _number: resend(here.cluster, group, places)[0], range(4)))
    done = [show(here.cluster, name).progress.counts for name in names]
    assert sorted(map(str, done)) == [*["{'replayed': 40}"] * 3, "{'sent': 40}"]
    wait_until(lambda: len(here.retries(group)) >= 40, "they arrive")
    assert planned(here.cluster, group, places) == ["replayed"] * 40
    found = [one["ORIGIN_MESSAGE_ID"] for one in here.retries(group)]
    assert Counter(found) == Counter(f"flights/0/{number}" for number in range(40))


def test_who_resends_slowly_leaves_out_what_another_one_has_resolved_meanwhile(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow transactions replace their producer, and its new registration shuts out who came in between."""
    group = with_dead_letters(here, 3)
    places, replace = [RecordAddress(0, number) for number in range(3)], Transactions.renew
    others: list[bool] = []

    def after_another(slow: Transactions) -> None:
        if not others:
            others.append(True)
            others[:] = [one.is_changed for one in resolve(here.cluster, group, places[1:], by="bob", why="x")]
        replace(slow)

    monkeypatch.setattr(run_module, "_TOGETHER", 1)
    monkeypatch.setattr(transactions, "_PROMPT_MS", -1)
    monkeypatch.setattr(Transactions, "renew", after_another)
    assert resend(here.cluster, group, places)[1] == ["sent", "resolved", "resolved"]
    assert others == [True, True]
    wait_until(lambda: len(here.retries(group)) == 1, "it arrives")


def test_what_was_sent_behind_an_open_transaction_is_not_sent_again(here: Installation) -> None:
    """Committed records behind it are not to be seen until it ends, so a resend waits for that."""
    group = with_dead_letters(here, 2)
    lane = here.settings.names.delay(0)
    producer = make_producer(transactional_settings(here.settings.client_settings(), here.unique("open"), 60_000))
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(lane, b"not yet", partition=0)
    producer.flush()
    # `DELAY.0s` has one partition here, so what is sent now stands behind.
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(resend, here.cluster, group, [RecordAddress(0, 0)])
        with pytest.raises(TimeoutError):
            first.result(3)
        producer.abort_transaction()
        assert first.result(PATIENCE)[1] == ["sent"]
        producer.begin_transaction()
        producer.produce(lane, b"not yet", partition=0)
        producer.flush()
        assert planned(here.cluster, group, [RecordAddress(0, 0)]) == ["replayed"]
        second = pool.submit(resend, here.cluster, group, [RecordAddress(0, 1)])
        with pytest.raises(TimeoutError):
            second.result(3)
        producer.abort_transaction()
        assert second.result(PATIENCE)[1] == ["sent"]
    close_producer(producer)
    wait_until(lambda: len(here.retries(group)) == 2, "both come")


def test_a_dry_run_writes_nothing_and_says_what_would_be_sent(
    here: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    group = with_dead_letters(here, 10)
    before = len(here.waiting(0, group))
    people, machines = Here(here.cluster, as_json=False), Here(here.cluster, as_json=True)
    resend_letters(people, DeadLetterFilter(text="timeout"), group, all_of_them=True, dry_run=True, yes=True)
    assert "5  will be sent" in capsys.readouterr().out
    assert len(here.waiting(0, group)) == before
    resend_letters(machines, DeadLetterFilter(text="timeout"), group, all_of_them=True, yes=True)
    said = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in said["records"]] == ["send"] * 5
    assert said["replay_id"].startswith("resend-")
    assert (said["status"], said["done"], said["left_out"]) == ("DONE", 5, 0)
    resend_letters(people, DeadLetterFilter(text="timeout"), group, all_of_them=True, yes=True)
    assert capsys.readouterr().out == f"group {group} has no open dead letters that match\n"
    resend_letters(people, DeadLetterFilter(text="timeout", state="RESENT"), group, all_of_them=True, yes=True)
    assert "5  it was sent again since it died" in capsys.readouterr().out
    assert len(here.waiting(0, group)) == before + 5


def test_the_commands_show_and_export_what_is_there(
    here: Installation, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    group = with_dead_letters(here, 3)
    people, machines = Here(here.cluster, as_json=False), Here(here.cluster, as_json=True)
    list_letters(people, DeadLetterFilter(), group, limit=2)
    out = capsys.readouterr().out
    assert "flights/0/2" in out
    assert "flights/0/0" not in out
    assert "2 of 2 dead letters that were read; older ones: --before 0:1" in out
    list_letters(machines, DeadLetterFilter(), group, before="0:1", limit=2)
    said = json.loads(capsys.readouterr().out)
    assert ([one["record"] for one in said["records"]], said["older"]) == (["0/0"], None)
    show_letter(machines, group, "0/1")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["cause"], shown["key"], shown["value"], shown["retries"]) == ("timeout", "key-1", "value-1", 16)
    assert shown["headers"][:2] == [["user", "\x00\\xff"], ["user", None]]
    export_letters(people, DeadLetterFilter(), group, file=tmp_path / "a")
    assert capsys.readouterr().err == f"3 dead letters of {group}\n"
    rows = [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()]
    assert [one["value"] for one in rows] == ["value-2", "value-1", "value-0"]
    assert rows[0]["headers"][0] == ["user", {"base64": "AP8="}]
    export_letters(machines, DeadLetterFilter(text="timeout"), group, form="csv", file=tmp_path / "b")
    assert json.loads(capsys.readouterr().err)["exported"] == 1
    with (tmp_path / "b").open() as file:
        [row] = csv.DictReader(file)
    assert (row["record"], row["cause"], row["value"]) == ("0/1", "timeout", "value-1")
    with pytest.raises(IllegalSetting, match="name a new file"):
        export_letters(people, DeadLetterFilter(), group, file=tmp_path / "a")
    with pytest.raises(IllegalSetting, match="jsonl, csv or parquet"):
        export_letters(people, DeadLetterFilter(), group, form="xlsx")


def test_an_export_reads_the_states_once(here: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = with_dead_letters(here, 9)
    resolve(here.cluster, group, [RecordAddress(0, 2), RecordAddress(0, 7)], by="bob", why="x")
    reads: list[StatesReader] = []
    read_since = StatesReader._read_since

    def counted(self: StatesReader, stored_ms: int) -> None:
        reads.append(self)
        read_since(self, stored_ms)

    monkeypatch.setattr(StatesReader, "_read_since", counted)
    export_letters(Here(here.cluster, as_json=False), DeadLetterFilter(), group, file=tmp_path / "large")
    once = len(reads)
    monkeypatch.setattr(dlq, "_EXPORT_PAGE", 2)
    export_letters(Here(here.cluster, as_json=False), DeadLetterFilter(), group, file=tmp_path / "small")
    assert len(reads) == 2 * once, "small pages read as often as a large one"
    states = [json.loads(line)["state"] for line in (tmp_path / "small").read_text().splitlines()]
    assert Counter(states) == {"OPEN": 7, "RESOLVED": 2}


def test_what_is_not_there_is_said(here: Installation) -> None:
    group = with_dead_letters(here, 3)
    with pytest.raises(TopicNotReady, match="it has no dead letters yet"):
        read_page(here.cluster, "nobody")
    with pytest.raises(RecordNotFound, match=r"0/3 of group .* \(and 1 more\)"):
        planned(here.cluster, group, [RecordAddress(0, 0), RecordAddress(0, 3), RecordAddress(7, 0)])
    with pytest.raises(RecordNotFound, match="dlq list"):
        read_one(here.cluster, group, RecordAddress(0, 9))
    with pytest.raises(IllegalSetting, match="the end of a page"):
        read_page(here.cluster, group, before="nonsense")
    with pytest.raises(IllegalSetting, match="between 1 and 10,000"):
        resolve(here.cluster, group, [], by="alice", why="x")


@pytest.mark.parametrize("wrong", ["17", "a/1", "0/", "-1/3", "0/99999999999999999999", "3000000000/0", "٣/1"])
def test_a_place_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(IllegalSetting, match="PARTITION/OFFSET"):
        RecordAddress.parse(wrong, "reconsume dlq list")


@pytest.mark.parametrize(
    ("places", "everything", "key"), [([], False, None), (["0/1"], True, None), (["0/1"], False, "k")]
)
def test_resend_wants_either_names_or_all(
    here: Installation, places: list[str], everything: bool, key: str | None
) -> None:
    with pytest.raises(IllegalSetting, match="--all"):
        resend_letters(Here(here.cluster, as_json=False), DeadLetterFilter(key=key), "g", places, everything, yes=True)
