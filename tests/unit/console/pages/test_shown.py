"""What people see of bytes, moments and names."""

from __future__ import annotations

import re

import pytest
from markupsafe import Markup

from reconsume.console.pages.bytes_shown import blob, header_rows, one_line, shorten
from reconsume.console.pages.filters import FIELDS, FilterForm, place_of, places_of
from reconsume.console.web.rendering import Links, displayed, spell, utc
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.decoding.payloads import HEX_BYTES, MOST_CHARACTERS
from reconsume.operations.record_address import RecordAddress


def test_bytes_are_shown_decoded_as_text_and_in_hexadecimal() -> None:
    shown = blob(b'{"a": 1.10, "a": [1]}', hide=False)
    assert shown.decoded is not None
    assert (shown.decoded.format, shown.decoded.text) == ("json", '{\n  "a": 1.10,\n  "a": [\n    1\n  ]\n}')
    assert (shown.text, shown.dumped) == ('{"a": 1.10, "a": [1]}', 21)
    plain = blob(b"text", hide=False)
    assert plain.decoded is not None
    assert (plain.decoded.text, plain.text) == ("text", None), "once is enough"
    controls = blob(b"\x1b[2J", hide=False)
    assert controls.decoded is not None
    assert (controls.decoded.format, controls.text) == ("hex", "\x1b[2J")


def test_long_values_are_cut_and_say_so() -> None:
    value = b"x" * (MOST_CHARACTERS + 1)
    shown = blob(value, hide=False)
    assert shown.decoded is not None
    assert (shown.size, len(shown.decoded.text), shown.decoded.is_cut, shown.dumped) == (
        MOST_CHARACTERS + 1,
        MOST_CHARACTERS,
        True,
        HEX_BYTES,
    )


def test_what_is_hidden_shows_its_size_alone() -> None:
    shown = blob(b"secret", hide=True)
    assert (shown.size, shown.text, shown.decoded, shown.dump) == (6, None, None, "")
    assert blob(None, hide=True).size is None
    assert one_line(b"secret", 40, hide=True) is None
    rows = header_rows(
        [("card", b"secret"), ("RECONSUME_TIME", b"3"), ("__dlq.errors.message", b"boom"), ("n", None)], hide=True
    )
    assert [(row.text, row.size, row.is_hidden, row.is_ours) for row in rows] == [
        (None, 6, True, False),
        ("3", 1, False, True),
        ("boom", 4, False, True),
        (None, None, False, False),
    ]


def test_headers_are_text_or_hexadecimal_or_nothing() -> None:
    rows = header_rows([("a", "中".encode()), ("a", b"\xff\x00"), ("b", None), ("c", b"x" * 10_000)], hide=False)
    assert [(row.name, row.text, row.is_hex, row.is_cut) for row in rows[:3]] == [
        ("a", "中", False, False),
        ("a", "ff 00", True, False),
        ("b", None, False, False),
    ]
    assert (len(rows[3].text or ""), rows[3].is_cut) == (8_192, True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("short", "short"), ("a\n  b\tc", "a b c"), ("x" * 11, "x" * 9 + "…"), (" " * 41 + "x", "…"), ("", "")],
)
def test_a_cell_of_a_table_is_one_short_line(text: str, shown: str) -> None:
    assert shorten(text, 10) == shown


def test_a_key_that_is_no_text_is_shown_in_hexadecimal() -> None:
    assert one_line(b"\xff\x01", 40, hide=False) == "ff01"
    assert one_line(b"PUL1545", 40, hide=False) == "PUL1545"


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("since", "since_ms"),
    [
        ("2h", NOW - 7_200_000),
        ("2027-01-15 08:00", NOW),
        ("2027-01-15T08:00:00Z", NOW),
        ("2027-01-15T10:00:00+02:00", NOW),
        ("2027-01-15", NOW - 8 * 3_600_000),
        (" 2h ", NOW - 7_200_000),
        ("", None),
    ],
)
def test_moments_of_a_filter(since: str, since_ms: int | None) -> None:
    assert FilterForm.of({"since": since}).wanted(NOW) == DeadLetterFilter(since_ms=since_ms)


@pytest.mark.parametrize("text", ["yesterday", "2h ago", "17", "0001-01-01T00:00+23:59x", "9999-99-99"])
def test_a_moment_that_is_none(text: str) -> None:
    with pytest.raises(IllegalSetting, match=re.escape(f"until {text!r}: write a time such as")):
        FilterForm.of({"until": text}).wanted(NOW)


def test_a_filter_stands_in_the_address_as_it_was_typed() -> None:
    query = {"text": "Timeout", "key": " k ", "message_id": "t/0/1", "since": "2h", "until": "1h"}
    query |= {
        "origin_topic": "flights",
        "with_header": "tenant=a=b",
        "state": "OPEN",
        "label": "KeyError",
        "other": "x",
    }
    form = FilterForm.of(query)
    assert form.query == {name: query[name] for name in FIELDS}
    assert form.wanted(NOW) == DeadLetterFilter(
        text="Timeout",
        key=" k ",
        message_id="t/0/1",
        origin_topic="flights",
        header="tenant=a=b",
        since_ms=NOW - 7_200_000,
        until_ms=NOW - 3_600_000,
        state="OPEN",
        label="KeyError",
    )
    assert FilterForm.of({"text": "  "}).wanted(NOW) == DeadLetterFilter()
    with pytest.raises(IllegalSetting, match="state 'DEAD': use OPEN, RESENT, RESOLVED, SUPERSEDED"):
        FilterForm.of({"state": "DEAD"}).wanted(NOW)
    with pytest.raises(IllegalSetting, match="with_header 'tenant': write name=text, such as tenant=acme"):
        FilterForm.of({"with_header": "tenant"}).wanted(NOW)


def test_a_label_whose_cut_ends_in_a_space_filters_its_letters() -> None:
    label = CauseLabels().label("ValueError", "x" * 107 + " is no gate")
    assert label.endswith("x ")
    assert FilterForm.of({"label": label}).wanted(NOW).label == label


@pytest.mark.parametrize("text", ["", "0", "0/", "/1", "-1/2", "0/1/2", "x/1", f"{2**31}/0", f"0/{2**63}", "0/1\n"])
def test_a_place_that_is_none(text: str) -> None:
    with pytest.raises(IllegalSetting):
        place_of(text)


def test_places_are_taken_once_and_in_order() -> None:
    assert places_of(["1/2", "0/10", "0/9", "1/2"]) == [RecordAddress(0, 9), RecordAddress(0, 10), RecordAddress(1, 2)]
    with pytest.raises(IllegalSetting, match="nothing is chosen"):
        places_of([])
    with pytest.raises(IllegalSetting, match="1,001 records are chosen"):
        places_of(["0/1"] * 1_001)


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(0, "0s"), (999, "0s"), (-59_000, "59s"), (61_000, "1m 1s"), (3_600_000, "1h"), (90_061_000, "1d 1h")],
)
def test_spans(milliseconds: int, shown: str) -> None:
    assert spell(milliseconds) == shown


def test_spans_in_words_of_another_language() -> None:
    assert (spell(3_661_000, "天 小时 分 秒"), spell(0, "天 小时 分 秒")) == ("1小时 1分", "0秒")


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(NOW, "2027-01-15 08:00:00 UTC"), (None, None), (10**18, str(10**18)), (-(10**18), str(-(10**18)))],
)
def test_moments(milliseconds: int | None, shown: str | None) -> None:
    assert utc(milliseconds) == shown


def test_nothing_invisible_is_shown_and_our_own_markup_stays() -> None:
    assert displayed("a\u202eb\x00c\n\te 中文 \U0001f600") == "a\\u202eb\\u0000c\n\te 中文 \U0001f600"
    assert displayed(17) == 17
    markup = Markup("<b>\u200b</b>")
    assert displayed(markup) is markup


def test_links_name_groups_of_any_name() -> None:
    links = Links()
    assert links.group("a/b c%?#&\"'<ü>") == "/groups/a%2Fb%20c%25%3F%23%26%22%27%3C%C3%BC%3E"
    assert links.group("g", "dead-letters", RecordAddress(0, 17)) == "/groups/g/dead-letters/0/17"
    assert links.to("/", q="a b&c", refresh=None, x="") == "/?q=a+b%26c"
    assert Links("zh").to("/", q="x") == "/?q=x&lang=zh"
