"""The forms that send something, over real sockets: what is asked, what is sent, whose forms are refused."""

from __future__ import annotations

import http.client
import logging
from typing import Any

import pytest

from reconsume.console.web.guard import BODY_BYTES
from reconsume.delay_levels.errors import KafkaNotReachable
from reconsume.operations.record_address import RecordAddress
from tests.support.consoles import Browser, basic
from tests.unit.console.fake_cluster import LETTERS, TOKEN, FakeCluster, running_over


def test_resending_asks_first_and_sends_once(
    browser: Browser, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.verdicts[RecordAddress(0, 1)] = "superseded"
    form = browser.get(LETTERS).seen.form("/resend")
    plan = browser.send(form, ("place", "0/1"), ("place", "0/2"))
    assert plan.status == 200
    assert "Will be sent: 1 of 2." in plan.seen.words
    assert "has a newer dead letter" in plan.seen.words
    assert cluster.sent == []
    run = plan.seen.form("/resend/run")
    [replay_id] = [value for name, value in run.fields if name == "replay_id"]
    assert replay_id.startswith("console-20261122T200000-")
    done = browser.send(run)
    assert f"Sent now: 1 of 2, replay id {replay_id}." in done.seen.words
    again = browser.send(run)
    assert f"Sent now: 0 of 2, replay id {replay_id}." in again.seen.words
    assert "it was sent again since it died" in again.seen.words
    assert cluster.sent == [("departures", [RecordAddress(0, 2)], replay_id), ("departures", [], replay_id)]
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("reconsume.console")]
    assert cluster.by == ["-", "-"]
    assert lines[0] == f"resend by -: 1 of 2 dead letters of group 'departures' sent, replay {replay_id}"
    assert 'reconsume_console_resent_records_total{outcome="send"}' in browser.probe("/metrics").text


def test_all_that_are_shown_may_be_chosen_at_once(browser: Browser) -> None:
    form = browser.get(LETTERS).seen.form("/resend")
    assert "all" in form.buttons
    plan = browser.send(form, ("all", "1"))
    assert [value for name, value in plan.seen.form("/resend/run").fields if name == "place"] == ["0/1", "0/2"]


def test_a_plan_of_nothing_has_no_button(browser: Browser, cluster: FakeCluster) -> None:
    cluster.verdicts = {RecordAddress(0, 1): "capped"}
    plan = browser.send(browser.get(LETTERS + "/0/1").seen.form("/resend")).seen
    assert plan.form("/resend/run").buttons == []
    assert "There is nothing to send." in plan.words


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ([], 400, "no dead letter is chosen"),
        ([("place", "x")], 400, "write PARTITION/OFFSET"),
        ([("place", "0/1")] * 1_001, 400, "1,001 dead letters are chosen"),
        ([("place", "0/1")] * 3_000, 400, "too many fields"),
    ],
)
def test_a_form_that_cannot_be(browser: Browser, fields: list[tuple[str, str]], status: int, why: str) -> None:
    refused = browser.send(browser.get(LETTERS).seen.form("/resend"), *fields)
    assert (refused.status, why in refused.seen.words) == (status, True), refused.text


def test_a_replay_id_that_cannot_be(browser: Browser, cluster: FakeCluster) -> None:
    token = dict(browser.get(LETTERS).seen.form("/resend").fields)["form_token"]
    fields = [("form_token", token), ("place", "0/1"), ("replay_id", "a b")]
    assert browser.post("/groups/departures/resend/run", fields).status == 400
    assert cluster.sent == []


def test_forms_that_are_not_of_this_console_send_nothing(browser: Browser, cluster: FakeCluster) -> None:
    form = browser.get(LETTERS).seen.form("/resend")
    run = browser.send(form, ("place", "0/1")).seen.form("/resend/run")
    for headers in (
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"origin": "http://evil.example"},
    ):
        refused = browser.post(run.action, run.fields, **headers)
        assert (refused.status, "a page of another site" in refused.text) == (403, True)
    for token in ("", "x", "\u00e9"):
        fields = [(name, token if name == "form_token" else value) for name, value in run.fields]
        refused = browser.post(run.action, fields)
        assert (refused.status, "started again since" in refused.text) == (403, True)
    assert cluster.sent == []
    own = {"origin": f"http://{browser.address}"}
    assert browser.post(run.action, run.fields, **own).status == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_form_that_is_too_large(browser: Browser, chunked: bool) -> None:
    connection = http.client.HTTPConnection(browser.address, timeout=60)
    body: Any = b"place=0/1&" * (BODY_BYTES // 10 + 1)
    headers = {"sec-fetch-site": "same-origin"} | ({"transfer-encoding": "chunked"} if chunked else {})
    content = iter([body[:100_000], body[100_000:]]) if chunked else body
    connection.request("POST", "/groups/departures/resend", content, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert (answer.status, "choose fewer" in text) == (413, True)


def test_a_read_only_console_sends_nothing(cluster: FakeCluster) -> None:
    with running_over(cluster, read_only=True) as browser:
        for path in (LETTERS, LETTERS + "/0/1"):
            page = browser.get(path)
            assert page.status == 200
            assert page.seen.places == []
            assert not [name for form in page.seen.forms for name in form.buttons if form.method == "post"]
            assert "Resend" not in page.seen.words
        for path in (f"/groups/departures/{what}" for what in ("resend", "resend/run", "resolve")):
            refused = browser.post(path, [("place", "0/1"), ("replay_id", "x")])
            assert (refused.status, "read-only" in refused.text) == (403, True)
    assert cluster.sent == []


def test_a_resend_without_an_answer_says_that_the_form_may_be_sent_again(
    browser: Browser, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    plan = browser.send(browser.get(LETTERS + "/0/1").seen.form("/resend"))
    cluster.error = KafkaNotReachable("sending dead letters again: no answer")
    page = browser.send(plan.seen.form("/resend/run"))
    assert page.status == 503
    assert "It is not known whether anything was sent." in page.seen.words
    assert any(" failed, replay " in one.getMessage() for one in caplog.records)


def test_the_log_names_who_has_sent(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running_over(cluster, token=TOKEN) as browser:
        browser.headers = basic("an\nna", TOKEN)
        browser.send(browser.send(browser.get(LETTERS + "/0/1").seen.form("/resend")).seen.form("/run"))
    assert [one.getMessage().partition(":")[0] for one in caplog.records if "resend by" in one.getMessage()] == [
        "resend by token"
    ]


def test_a_dead_letter_is_resolved_with_a_reason_and_opened_again(browser: Browser) -> None:
    place = LETTERS + "/0/1"
    done = browser.send(browser.get(place).seen.form("/resolve"), ("why", " the flight was cancelled "))
    assert done.status == 200
    assert "Changed: 1 of 1." in done.seen.words
    page = browser.get(place).seen
    assert "the flight was cancelled" in page.words
    assert [one.action for one in page.forms if one.action.endswith("/resolve")] == ["/groups/departures/resolve"]
    again = browser.send(page.form("/resolve"), ("reopen", "1"))
    assert "Changed: 1 of 1." in again.seen.words
    assert "the flight was cancelled" not in browser.get(place).seen.words


def test_resolving_needs_a_reason_and_leaves_alone_what_is_not_open(browser: Browser) -> None:
    token = dict(browser.get(LETTERS).seen.form("/resend").fields)["form_token"]
    fields = [("form_token", token), ("place", "0/1")]
    for why in ([], [("why", "  ")]):
        refused = browser.post("/groups/departures/resolve", [*fields, *why])
        assert (refused.status, "the reason is missing" in refused.text) == (400, True)
    for changed in (1, 0):
        done = browser.post("/groups/departures/resolve", [*fields, ("why", "x")])
        assert f"Changed: {changed} of 1." in done.seen.words
    refused = browser.post("/groups/departures/resolve", [("place", "0/1"), ("why", "x")])
    assert (refused.status, "started again since" in refused.text) == (403, True)


def test_the_list_filters_by_state(browser: Browser) -> None:
    browser.send(browser.get(LETTERS + "/0/1").seen.form("/resolve"), ("why", "x"))
    assert browser.get(LETTERS + "?state=RESOLVED").seen.places == ["0/1"]
    assert browser.get(LETTERS + "?state=OPEN").seen.places == ["0/2"]
    assert browser.get(LETTERS + "?state=LOST").status == 400
