"""The bodies of an app's answers: which of them say something, however they are written."""

from __future__ import annotations

import gzip
import zlib

import pytest

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.sidecar.push.answers import Meaning, judge
from reconsume.sidecar.push.http_client import BODY_LIMIT, answer_of
from reconsume.sidecar.push.settings import Profile

TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
RETRY = {"status": "RETRY"}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"status": "RETRY"}', RETRY),
        (b' \n{"status": "RETRY"}', RETRY),
        (b"null", None),
        (b'"RETRY"', None),
        (b'{"status"', None),
        (b"{" * 60_000, None),
        (b'{"x": "' + b"x" * BODY_LIMIT + b'"}', None),
    ],
)
def test_only_an_object_in_json_says_anything(body: bytes, found: object) -> None:
    answer = answer_of(200, {"content-type": "text/plain"}, body)
    assert (answer.json, answer.headers) == (found, {"content-type": "text/plain"})


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b'\xef\xbb\xbf{"status": "RETRY"}', ""),
        (b'{"status": "RETRY", "error": "caf\xe9"}', ""),
        (b'{"status": "RETRY", "took": NaN}', ""),
        (b'{"status": "RETRY"}<br />', ""),
        (b'{"error": {"stack": "' + b"x" * 70_000 + b'"}, "status": "RETRY"}', ""),
        (b'{"error": {"stack": "' + b"x" * BODY_LIMIT + b'"}, "status": "RETRY"}', ""),
        (gzip.compress(b'{"status": "RETRY"}'), "gzip"),
        (zlib.compress(b'{"status": "RETRY"}'), "Deflate"),
        (gzip.compress(b'{"x": "' + b"x" * BODY_LIMIT + b'", "status": "RETRY"}'), "gzip"),
        (b'{"status": "RETRY"}', "gzip"),
    ],
    ids=["BOM", "Latin-1", "NaN", "trailing", "long", "too long", "gzip", "deflate", "gzip too long", "no gzip"],
)
def test_an_app_that_asks_for_a_retry_is_heard_however_it_writes_it(body: bytes, coding: str) -> None:
    """An acknowledgement would lose the message."""
    answer = answer_of(200, {"content-encoding": coding} if coding else {}, body[:BODY_LIMIT])
    assert judge(answer, Profile.NATIVE, size=1, now_ms=0, policy=lambda: TABLE).meaning is Meaning.RETRY


@pytest.mark.parametrize("body", [b"<html>" + b"x" * BODY_LIMIT, b"", b"{ok}", gzip.compress(b"ok")], ids=range(4))
def test_any_other_answer_with_200_is_a_success(body: bytes) -> None:
    answer = answer_of(200, {"content-encoding": "gzip"}, body[:BODY_LIMIT])
    assert judge(answer, Profile.NATIVE, size=1, now_ms=0, policy=lambda: TABLE).meaning is Meaning.ACK
