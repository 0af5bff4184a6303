"""`reconsume quarantine`: every kind of poison is listed with its reason, and goes back once when it was mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconsume.bridge.writing import transactions
from reconsume.bridge.writing.transactions import Transactions
from reconsume.cli.commands.quarantine import list_quarantine, release_records, resolve_records, show_record
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.wire.properties import Header
from reconsume.operations.quarantine import changes as changes_module
from reconsume.operations.quarantine.changes import release, resolve_quarantined
from reconsume.operations.quarantine.records import QuarantineFilter, read_quarantine
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.status import collect_status
from tests.integration.installation import Installation, Record, installation
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

USER: list[Header] = [("user", b"\x00\xff"), ("user", None)]
WAITED: list[Header] = [("RETRY_TOPIC", b"orders"), ("ORIGIN_MESSAGE_ID", b"orders/0/7"), ("RECONSUME_TIME", b"1")]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def listed(here: Installation, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    list_quarantine(Here(here.cluster, as_json=True), QuarantineFilter())
    return list(json.loads(capsys.readouterr().out))


def put_in(here: Installation, topic: str, value: bytes, headers: list[Header]) -> RecordAddress:
    """A record that is poison, in the quarantine."""
    here.produce(here.settings.topic_prefix + topic, value, key=b"k", headers=[*USER, *headers])
    found = wait_until(
        lambda: [one.place for one in read_quarantine(here.cluster) if one.value == value], "it is quarantined"
    )
    return found[0]


def delivered(here: Installation, group: str, value: bytes) -> list[Record]:
    return [one for one in here.retries(group) if one.value == value]


@pytest.mark.parametrize(
    ("topic", "headers", "reason", "wrong", "arrives_with"),
    [
        pytest.param("DELAY.0s", WAITED, "REAL_TOPIC is missing", "REAL_TOPIC", "1", id="no target"),
        pytest.param(
            "DELAY.1s",
            [*WAITED, ("REAL_TOPIC", b"payments")],
            "allowed_real_topics",
            "REAL_TOPIC",
            "1",
            id="not allowed",
        ),
        pytest.param("DELAY.0s", [*WAITED, ("REAL_TOPIC", b"\xff")], "not UTF-8", "REAL_TOPIC", "1", id="no text"),
        pytest.param("SEND_BACK", WAITED, "REAL_TOPIC is missing", "REAL_TOPIC", "2", id="send-back of nobody"),
        pytest.param(
            "SEND_BACK",
            [("RETRY_TOPIC", b"orders"), ("RECONSUME_TIME", b"many"), ("REAL_TOPIC", b"%RETRY%{}")],
            "RECONSUME_TIME must be a whole number",
            "RECONSUME_TIME",
            "1",
            id="no count",
        ),
    ],
)
def test_what_is_mended_goes_back_once_as_it_was(
    here: Installation,
    capsys: pytest.CaptureFixture[str],
    topic: str,
    headers: list[Header],
    reason: str,
    wrong: str,
    arrives_with: str,
) -> None:
    group = here.unique("g")
    value = group.encode()
    headers = [(name, (text or b"").replace(b"{}", value)) for name, text in headers]
    place = put_in(here, topic, value, headers)
    [shown] = [one for one in listed(here, capsys) if one["record"] == str(place)]
    assert reason in shown["reason"]
    assert shown["stood_at"].startswith(f"{here.settings.topic_prefix}{topic}/")
    before = collect_status(here.cluster).as_json()["quarantined"]
    mended = f"{wrong}=%RETRY%{group}" if wrong == "REAL_TOPIC" else f"{wrong}=0"
    release_records(Here(here.cluster, as_json=True), QuarantineFilter(), [str(place)], header=[mended], yes=True)
    [arrived] = wait_until(lambda: delivered(here, group, value), "it arrives")
    assert arrived.key == b"k"
    assert arrived.headers[: len(USER)] == USER
    assert arrived["RECONSUME_TIME"] == arrives_with
    assert not [name for name, _ in arrived.headers if name.startswith("QUARANTINE")]
    assert str(place) not in [one["record"] for one in listed(here, capsys)]
    assert collect_status(here.cluster).as_json()["quarantined"] == before - 1
    with pytest.raises(IllegalSetting, match="released before"):
        release(here.cluster, [place], {})
    capsys.readouterr()
    show_record(Here(here.cluster, as_json=True), str(place))
    assert json.loads(capsys.readouterr().out)["released"]


def test_what_was_not_mended_comes_back(here: Installation) -> None:
    value = here.unique("again").encode()
    place = put_in(here, "DELAY.0s", value, [])
    release(here.cluster, [place], {})

    def places() -> list[RecordAddress]:
        return [one.place for one in read_quarantine(here.cluster) if one.value == value]

    wait_until(lambda: len(places()) == 2, "it is quarantined again")
    [again] = [one for one in read_quarantine(here.cluster) if one.value == value and one.state == "OPEN"]
    assert again.quarantined.headers == USER


def test_of_those_who_release_at_once_one_does(here: Installation) -> None:
    group = here.unique("g")
    places = [put_in(here, "DELAY.0s", b"%s%d" % (group.encode(), number), []) for number in range(3)]

    def try_to(_: int) -> int:
        try:
            return release(here.cluster, places, {"REAL_TOPIC": f"%RETRY%{group}"})
        except ReconsumeError:
            return 0

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(try_to, range(4)))
    if not any(counts):
        assert try_to(0), "all were fenced, so nothing is released yet"
    wait_until(lambda: len(here.retries(group)) == 3, "they arrive")
    assert sum(one > 0 for one in counts) <= 1
    assert all(one.state == "RELEASED" for one in read_quarantine(here.cluster) if one.place in places)
    assert len(here.retries(group)) == 3


def test_one_that_was_handled_by_other_means_is_closed_with_a_reason(
    here: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    table, document = Here(here.cluster, as_json=False), Here(here.cluster, as_json=True)
    value = here.unique("known").encode()
    places = [put_in(here, "DELAY.0s", b"%s%d" % (value, number), WAITED) for number in range(3)]
    names = [str(one) for one in places]
    before = collect_status(here.cluster).as_json()["quarantined"]
    with pytest.raises(IllegalSetting, match="needs a reason"):
        resolve_records(table, QuarantineFilter(), " ", names[:1], yes=True)
    capsys.readouterr()
    resolve_records(table, QuarantineFilter(), "sent by hand", names[:1], yes=True)
    assert capsys.readouterr().out == "1 resolved\n"
    with pytest.raises(IllegalSetting, match="was resolved before"):
        release(here.cluster, places[:1], {})
    with pytest.raises(IllegalSetting, match="was resolved before"):
        resolve_quarantined(here.cluster, places, by="bob", why="x")
    assert collect_status(here.cluster).as_json()["quarantined"] == before - 1
    assert [one["record"] for one in listed(here, capsys) if one["record"] in names] == names[1:]
    list_quarantine(document, QuarantineFilter(), state="resolved")
    assert [one["record"] for one in json.loads(capsys.readouterr().out)] == names[:1]
    show_record(document, names[0])
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["released"], shown["state_why"]) == ("RESOLVED", False, "sent by hand")
    assert shown["value"] == f"{value.decode()}0"
    resolve_records(document, QuarantineFilter(text="REAL_TOPIC is missing"), "rest", all_of_them=True, yes=True)
    assert {one["record"] for one in json.loads(capsys.readouterr().out)} >= set(names[1:])
    assert not [one for one in listed(here, capsys) if "REAL_TOPIC is missing" in one["reason"]]


def test_who_releases_slowly_leaves_out_what_another_one_has_released_meanwhile(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, replace, others = here.unique("g"), Transactions.renew, list[int]()
    places = [put_in(here, "DELAY.0s", b"%s%d" % (group.encode(), number), []) for number in range(3)]
    changes = {"REAL_TOPIC": f"%RETRY%{group}"}

    def after_another(slow: Transactions) -> None:
        if not others:
            others.append(0)
            others[0] += release(here.cluster, places[1:], changes)
        replace(slow)

    monkeypatch.setattr(changes_module, "_TOGETHER", 1)
    monkeypatch.setattr(transactions, "_PROMPT_MS", -1)
    monkeypatch.setattr(Transactions, "renew", after_another)
    assert release(here.cluster, places, changes) == 1
    assert others == [2]
    wait_until(lambda: len(here.retries(group)) == 3, "they arrive")


@pytest.mark.parametrize("wrong", ["17", "a/1", "0/", "0/99999999"])
def test_a_place_where_nothing_is_is_refused(here: Installation, wrong: str) -> None:
    with pytest.raises(IllegalSetting, match=r"PARTITION/OFFSET|the record does not exist"):
        show_record(Here(here.cluster, as_json=False), wrong)


@pytest.mark.parametrize(("places", "everything"), [([], False), (["0/1"], True)])
def test_release_wants_either_names_or_all(here: Installation, places: list[str], everything: bool) -> None:
    with pytest.raises(IllegalSetting, match="--all"):
        release_records(Here(here.cluster, as_json=False), QuarantineFilter(), places, everything, yes=True)
