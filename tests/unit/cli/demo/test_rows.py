"""The demo's input: CSV or JSON lines, plain or gzip."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconsume.cli.demo.rows import parse_condition, read_rows
from reconsume.delay_levels.errors import ReconsumeError

ROWS = [{"id": "1", "state": "fine"}, {"id": "2", "state": "broken, for good"}, {"id": "3", "state": ""}]


def as_csv() -> str:
    return "id,state\n" + "".join(f'{row["id"]},"{row["state"]}"\n' for row in ROWS)


def as_json_lines() -> str:
    return "\n".join(map(json.dumps, ROWS)) + "\n\n"


@pytest.mark.parametrize(
    ("name", "text"), [("rows.csv", as_csv), ("rows.jsonl", as_json_lines)], ids=["CSV", "JSON lines"]
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_each_format_gives_the_same_rows(tmp_path: Path, name: str, text: Callable[[], str], *, packed: bool) -> None:
    file = tmp_path / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(text().encode()) if packed else text().encode())
    assert list(read_rows(file)) == ROWS
    assert next(read_rows(file)) == ROWS[0]


def test_the_flights_that_are_packaged_are_read_without_a_file() -> None:
    rows = list(read_rows(None))
    assert len(rows) == 20_000
    assert {"origin", "dest", "dep_time"} <= rows[0].keys()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("rows.csv.gz", gzip.compress(b"id,state\n1,fine\n" * 1_000)[:-20], "cannot be read to its end"),
        ("rows.csv.gz", b"id,state\n1,fine\n", "cannot be read to its end"),
        ("rows.csv", b"id,state\n1,\xff\n", "cannot be read to its end"),
        ("rows.jsonl", b'{"id": "1"}\n[]\n', "line 2: must be a JSON object"),
        ("rows.jsonl", b"{\n", "line 1: not JSON"),
        ("rows.jsonl", b"{}\n" + b"[" * 200_000, "line 2: not JSON: maximum recursion"),
        ("rows.csv", b"id,state\n1,fine\n2,fine,more\n", "line 3: must not have more values than the header"),
    ],
    ids=["cut off", "no gzip", "not UTF-8", "no object", "no JSON", "too deep", "too wide"],
)
def test_what_cannot_be_read_is_said_with_its_file(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReconsumeError, match=told) as refused:
        list(read_rows(tmp_path / name))
    assert name in str(refused.value)


def test_a_condition_chooses_rows() -> None:
    fails = parse_condition("state=broken, for good")
    assert [row["id"] for row in ROWS if fails(row)] == ["2"]
    with pytest.raises(ReconsumeError, match="COLUMN=VALUE"):
        parse_condition("state")
