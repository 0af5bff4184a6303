"""The forms that send something, over real sockets: what is asked, what is sent, whose forms are refused."""

from __future__ import annotations

import http.client
import logging
from typing import Any

import pytest

from reconsume.console.web.guard import BODY_BYTES
from reconsume.delay_levels.errors import KafkaNotReachable, TopicNotReady
from reconsume.operations.record_address import RecordAddress
from tests.support.consoles import Browser, basic
from tests.unit.console.fake_cluster import LETTERS, TOKEN, FakeCluster, running_over


def test_a_selection_is_planned_and_becomes_a_job(
    browser: Browser, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster.verdicts[RecordAddress(0, 1)] = "superseded"
    form = browser.get(LETTERS).seen.form("/job")
    plan = browser.send(form, ("place", "0/1"), ("place", "0/2"))
    assert plan.status == 200
    assert "match 2 would be changed 1" in plan.seen.words
    assert "left out: the message has a newer dead letter" in plan.seen.words
    assert "0/2 will be resent" in plan.seen.words
    assert cluster.jobs == {}
    made = browser.send(plan.seen.form("/jobs"), ("why", "the gateway is back"))
    assert made.status == 303
    [job] = cluster.jobs.values()
    assert made.headers["location"] == f"/jobs/{job.name}"
    assert (job.spec.kind, job.spec.records, job.spec.count) == ("resend", {0: [1, 2]}, 2)
    assert (job.spec.rate, job.spec.target, job.spec.why, job.spec.by) == (50, "retry", "the gateway is back", "-")
    assert "Resend selected dead letters" in browser.get(made.headers["location"]).seen.words
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("reconsume.console")]
    assert lines == [f"job created job={job.name} kind=resend group='departures' by=-"]


def test_all_that_are_shown_may_be_chosen_at_once(browser: Browser) -> None:
    form = browser.get(LETTERS).seen.form("/job")
    assert "all" in form.buttons
    plan = browser.send(form, ("all", "1"))
    assert [value for name, value in plan.seen.form("/jobs").fields if name == "place"] == ["0/1", "0/2"]


def test_a_plan_of_nothing_has_no_button(browser: Browser, cluster: FakeCluster) -> None:
    cluster.verdicts = {RecordAddress(0, 1): "capped"}
    plan = browser.send(browser.get(LETTERS + "/0/1").seen.form("/job")).seen
    assert [one.action for one in plan.forms if one.method == "post"] == []
    assert "Nothing to do." in plan.words


def test_without_the_topic_of_jobs_the_plan_says_what_to_run(browser: Browser, cluster: FakeCluster) -> None:
    form = browser.get(LETTERS + "/0/1").seen.form("/job")
    cluster.error = TopicNotReady("topic reconsume.JOBS does not exist; create it: reconsume topics apply")
    refused = browser.send(form)
    assert (refused.status, "reconsume topics apply" in refused.seen.words) == (404, True)


@pytest.mark.parametrize(
    ("fields", "status", "why"),
    [
        ([], 400, "nothing is chosen"),
        ([("place", "x")], 400, "write PARTITION/OFFSET"),
        ([("place", "0/1")] * 1_001, 400, "1,001 records are chosen"),
        ([("place", "0/1")] * 3_000, 400, "too many fields"),
    ],
)
def test_a_form_that_cannot_be(browser: Browser, fields: list[tuple[str, str]], status: int, why: str) -> None:
    refused = browser.send(browser.get(LETTERS).seen.form("/job"), *fields)
    assert (refused.status, why in refused.seen.words) == (status, True), refused.text


def test_forms_that_are_not_of_this_console_send_nothing(browser: Browser, cluster: FakeCluster) -> None:
    form = browser.get(LETTERS).seen.form("/job")
    run = browser.send(form, ("place", "0/1")).seen.form("/jobs")
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
    assert cluster.jobs == {}
    own = {"origin": f"http://{browser.address}"}
    assert browser.post(run.action, run.fields, **own).status == 303


@pytest.mark.parametrize("chunked", [False, True])
def test_a_form_that_is_too_large(browser: Browser, chunked: bool) -> None:
    connection = http.client.HTTPConnection(browser.address, timeout=60)
    body: Any = b"place=0/1&" * (BODY_BYTES // 10 + 1)
    headers = {"sec-fetch-site": "same-origin"} | ({"transfer-encoding": "chunked"} if chunked else {})
    content = iter([body[:100_000], body[100_000:]]) if chunked else body
    connection.request("POST", "/groups/departures/job", content, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert (answer.status, "Select fewer" in text) == (413, True)


def test_a_form_of_another_site_is_refused_whatever_its_size(browser: Browser) -> None:
    refused = browser.post("/groups/departures/job", [("text", "x" * 20_000_000)], sec_fetch_site="cross-site")
    assert (refused.status, "a page of another site" in refused.text) == (403, True)


def test_a_read_only_console_sends_nothing(cluster: FakeCluster) -> None:
    with running_over(cluster, read_only=True) as browser:
        for path in (LETTERS, LETTERS + "/0/1"):
            page = browser.get(path)
            assert page.status == 200
            assert page.seen.places == []
            assert not [name for form in page.seen.forms for name in form.buttons if form.method == "post"]
            assert "…" not in page.seen.words, "no button that leads to a change"
        for path in (f"/groups/departures/{what}" for what in ("job", "jobs", "resolve", "retries")):
            refused = browser.post(path, [("place", "0/1")])
            assert (refused.status, "read-only" in refused.text) == (403, True)
    assert cluster.jobs == {}


def test_a_job_without_an_answer_says_where_to_look(browser: Browser, cluster: FakeCluster) -> None:
    plan = browser.send(browser.get(LETTERS + "/0/1").seen.form("/job"))
    cluster.error = KafkaNotReachable("writing to reconsume.JOBS: no answer")
    page = browser.send(plan.seen.form("/jobs"))
    assert page.status == 503
    assert "does not know whether the job exists" in page.seen.words


def test_the_log_names_who_has_created_a_job(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with running_over(cluster, token=TOKEN) as browser:
        browser.headers = basic("an\nna", TOKEN)
        browser.send(browser.send(browser.get(LETTERS + "/0/1").seen.form("/job")).seen.form("/jobs"))
    [line] = [one.getMessage() for one in caplog.records if "job created" in one.getMessage()]
    assert line.endswith(" by=token")


def test_a_dead_letter_is_resolved_with_a_reason_and_opened_again(browser: Browser) -> None:
    place = LETTERS + "/0/1"
    done = browser.send(browser.get(place).seen.form("/resolve"), ("why", " the flight was cancelled "))
    assert done.status == 200
    assert "1 of 1 changed." in done.seen.words
    page = browser.get(place).seen
    assert "the flight was cancelled" in page.words
    assert [one.action for one in page.forms if one.action.endswith("/resolve")] == ["/groups/departures/resolve"]
    again = browser.send(page.form("/resolve"), ("reopen", "1"))
    assert "1 of 1 changed." in again.seen.words
    assert "the flight was cancelled" not in browser.get(place).seen.words


def test_resolving_needs_a_reason_and_leaves_alone_what_is_not_open(browser: Browser) -> None:
    token = dict(browser.get(LETTERS).seen.form("/job").fields)["form_token"]
    fields = [("form_token", token), ("place", "0/1")]
    for why in ([], [("why", "  ")]):
        refused = browser.post("/groups/departures/resolve", [*fields, *why])
        assert (refused.status, "the reason is missing" in refused.text) == (400, True)
    for changed in (1, 0):
        done = browser.post("/groups/departures/resolve", [*fields, ("why", "x")])
        assert f"{changed} of 1 changed." in done.seen.words
    refused = browser.post("/groups/departures/resolve", [("place", "0/1"), ("why", "x")])
    assert (refused.status, "started again since" in refused.text) == (403, True)


def test_enter_in_a_field_for_a_reason_sends_the_reason(browser: Browser, cluster: FakeCluster) -> None:
    pages = [browser.get(path).seen for path in (LETTERS, LETTERS + "/0/1", "/groups/departures/job?kind=resolve")]
    forms = [form for page in pages for form in page.forms if "why" in dict(form.fields)]
    assert [form.targets[0].rpartition("/")[2] for form in forms] == ["resolve", "resolve", "jobs"]
    done = browser.post(forms[0].targets[0], [*forms[0].fields, ("place", "0/1"), ("why", "known")])
    assert ("1 of 1 changed." in done.seen.words, cluster.jobs) == (True, {})


def test_the_list_filters_by_state(browser: Browser) -> None:
    browser.send(browser.get(LETTERS + "/0/1").seen.form("/resolve"), ("why", "x"))
    assert browser.get(LETTERS + "?state=RESOLVED").seen.places == ["0/1"]
    assert browser.get(LETTERS + "?state=OPEN").seen.places == ["0/2"]
    assert browser.get(LETTERS + "?state=LOST").status == 400
