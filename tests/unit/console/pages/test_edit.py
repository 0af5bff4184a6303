"""One dead letter, corrected by a form: what the form carries, what was changed, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.console.pages.edit_pages import editable, typed_value
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from tests.support.consoles import Browser, Form
from tests.unit.console.fake_cluster import LETTERS, FakeCluster, letter

EDIT = LETTERS + "/0/1/edit"


def edited(form: Form, **fields: str) -> Form:
    """The form with other texts in some of its fields; a page sends the ends of lines as CR LF."""
    return form._replace(fields=[(name, fields.get(name, text)) for name, text in form.fields])


def test_an_edit_is_shown_before_and_after_and_becomes_a_job(browser: Browser, cluster: FakeCluster) -> None:
    trace = [("trace", b"a<b>"), ("old", b"1"), ("twice", b"1"), ("twice", b"2")]
    cluster.letters["departures"][0] = letter(1, value=b'\n{"a": 1,\n "b": "<i>"}\n', headers=trace)
    assert EDIT in browser.get(LETTERS + "/0/1").seen.links
    page = browser.get(EDIT)
    form = page.seen.form("/job")
    assert ("value", '\r\n{"a": 1,\r\n "b": "<i>"}\r\n') in form.fields
    assert [text for name, text in form.fields if name == "header"] == ["trace", "old"]
    assert "These headers stay as they are: twice" in page.seen.words
    changed = edited(form, value='\r\n{"a": 2,\r\n "b": "<i>"}\r\n')
    plan = browser.send(changed, ("removed", "old"), ("new_name", "fixed-by"), ("new_value", "anna"))
    for text in ('"a": 1', '"a": 2', "old 1 removed", "fixed-by none (null) anna", "0/1 will be resent"):
        assert text in plan.seen.words, text
    assert cluster.jobs == {}
    made = browser.send(plan.seen.form("/jobs"), ("why", "typo"))
    assert made.status == 303
    [job] = cluster.jobs.values()
    assert job.spec.edit == LetterEdit(b'\n{"a": 2,\n "b": "<i>"}\n', {"old": None, "fixed-by": "anna"})
    shown = browser.get(made.headers["location"]).seen.words
    assert "Edited value,headers" in shown
    assert '"a": 2' not in shown, "who may see the job may not see values"


def test_fields_that_are_as_they_were_change_nothing(browser: Browser) -> None:
    refused = browser.send(browser.get(EDIT).seen.form("/job"))
    assert (refused.status, "nothing was changed" in refused.seen.words) == (400, True)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ([("new_name", "RECONSUME_TIME"), ("new_value", "0")], "is reserved"),
        ([("new_name", "trace"), ("new_value", "0")], "exists already"),
        ([("new_name", "x"), ("new_value", "\0")], "NUL"),
        ([("header", "other"), ("header_value", "0")], "is unknown to this form"),
        ([("place", "0/2"), ("new_name", "x"), ("new_value", "0")], "an edit is for one"),
    ],
)
def test_an_edit_that_cannot_be(browser: Browser, cluster: FakeCluster, more: list[tuple[str, str]], why: str) -> None:
    cluster.letters["departures"][0] = letter(1, headers=[("trace", b"a")])
    refused = browser.send(browser.get(EDIT).seen.form("/job"), *more)
    assert (refused.status, why in refused.seen.words, cluster.jobs) == (400, True, {})


@pytest.mark.parametrize("value", [b"\xff", b"a\x00", "a\u202eb".encode(), b"x" * 40_000])
def test_a_value_that_a_form_cannot_carry_stays_as_it_is(browser: Browser, cluster: FakeCluster, value: bytes) -> None:
    cluster.letters["departures"][0] = letter(1, value=value)
    page = browser.get(EDIT).seen
    assert "textarea" not in page.tags
    assert "--value-file" in page.words
    sent: Any = browser.send(page.form("/job"), ("value", "typed"), ("new_name", "x"), ("new_value", "1"))
    browser.send(sent.seen.form("/jobs"))
    assert [one.spec.edit for one in cluster.jobs.values()] == [LetterEdit(None, {"x": "1"})]


@given(st.text(), st.text())
def test_ends_of_lines_follow_the_value_as_it_was(before: str, typed: str) -> None:
    """Whatever a browser sends back unchanged changes nothing; what was changed has ends of lines of one kind."""
    sent = before.replace("\r\n", "\n").replace("\n", "\r\n")
    assert typed_value(before, sent) is None
    new = typed_value("a\r\nb", typed.replace("\r\n", "\n").replace("\n", "\r\n"))
    assert new is None or b"\n" not in new.replace(b"\r\n", b"")


def test_ours_and_headers_that_no_person_can_see_are_not_offered() -> None:
    headers = [("REPLAY_ID", b"x"), ("a", b"1"), ("b\n", b"1"), ("c", b"\xff"), ("d", None), ("e", b"1\n2")]
    found = editable(letter(1, headers=headers))
    assert (found.headers, found.kept) == ([("a", "1")], ["b\n", "c", "d", "e"])
