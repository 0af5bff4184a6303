"""Pages of jobs and of the quarantine, with a cluster in memory."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.wire.jobs.job_records import JobProgress
from reconsume.delay_levels.wire.quarantine import Quarantined
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.record_address import RecordAddress
from tests.support.consoles import Browser, basic, console_settings, running_console
from tests.unit.console.fake_cluster import LETTERS, NOW, FakeCluster, letter, running_over

XSS = '"><script>alert(1)</script>'
VIEWER, OPERATOR = "viewer-token-0123456789", "operator-token-0123456789"


def held(offset: int, reason: str = "malformed") -> QuarantineRecord:
    told = Quarantined([], reason, Position("reconsume.DELAY.10s", 0, 3), NOW)
    return QuarantineRecord(RecordAddress(0, offset), b"key", b"value", told, NOW, state="OPEN")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_that_match_are_shown_before_a_job_is_created(
    browser: Browser, cluster: FakeCluster, language: str
) -> None:
    listed = browser.get(f"{LETTERS}?text=Timeout&lang={language}").seen
    [link] = [one for one in listed.links if "/job?" in one and "kind=resend" in one]
    plan = browser.get(link)
    assert (plan.status, cluster.jobs) == (200, {})
    assert "Timeout after 17 s" in plan.seen.words
    made = browser.send(plan.seen.form("/jobs"), ("why", "the gateway is back"))
    assert made.status == 303
    [job] = cluster.jobs.values()
    assert (job.spec.kind, job.spec.wanted.text, job.spec.rate, job.spec.count) == ("resend", "Timeout", 50, 1)
    assert (job.spec.why, job.spec.by) == ("the gateway is back", "-")
    page = browser.get(f"{made.headers['location']}?lang={language}").seen
    assert job.name in page.words
    assert "the gateway is back" in page.words


def test_a_job_takes_the_time_of_its_dry_run_whenever_the_form_is_sent(browser: Browser, cluster: FakeCluster) -> None:
    form = browser.get("/groups/departures/job?kind=resend&since=2h&until=2026-11-22+19:59").seen.form("/jobs")
    moments = {"since": "2026-11-22T18:00:00.000+00:00", "until": "2026-11-22T19:59:00.000+00:00"}
    assert moments.items() <= dict(form.fields).items()
    browser.send(form)
    [job] = cluster.jobs.values()
    assert (job.spec.wanted.since_ms, job.spec.wanted.until_ms) == (NOW - 7_200_000, NOW - 60_000)
    assert browser.get("/groups/departures/job?kind=resend&until=9999-12-31T23:59:59-23:59").status == 200


def test_a_job_takes_more_than_a_million_dead_letters(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "plan_job", lambda *_: JobPlan(1_234_567, 1_234_567))
    made = browser.send(browser.get("/groups/departures/job?kind=resend").seen.form("/jobs"), ("rate", "1000000"))
    assert made.status == 303, made.seen.words
    [job] = cluster.jobs.values()
    assert (job.spec.count, job.spec.rate) == (1_234_567, 1_000_000)


@pytest.mark.parametrize("found", [20_000, 0])
def test_a_dry_run_that_has_not_counted_all_says_so_and_its_job_takes_all(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, found: int
) -> None:
    monkeypatch.setattr(cluster, "plan_job", lambda *_: JobPlan(found, found, is_whole=False))
    plan = browser.get("/groups/departures/job?kind=resend").seen
    assert f"at least {found:,}" in plan.words
    assert "Only the newest dead letters were counted" in plan.words
    assert browser.send(plan.form("/jobs")).status == 303
    [job] = cluster.jobs.values()
    assert job.spec.count is None


def test_a_job_is_paused_goes_on_and_is_cancelled(browser: Browser, cluster: FakeCluster) -> None:
    browser.send(browser.get("/groups/departures/job?kind=resend").seen.form("/jobs"))
    [name] = cluster.jobs
    running = JobProgress("here", counts={"sent": 1, "superseded": 1}, reasons={"superseded": ["0/1: newer"]})
    cluster.jobs[name] = replace(cluster.jobs[name], progress=running, beat_ms=NOW)
    page = browser.get(f"/jobs/{name}").seen
    assert "running" in page.words
    assert "2 of 2" in page.words
    assert "0/1: newer" in page.words
    assert browser.send(page.form("/wish"), ("wish", "pause")).status == 303
    paused = browser.get(f"/jobs/{name}").seen
    assert "paused" in paused.words
    browser.send(paused.form("/wish"), ("wish", "resume"))
    assert "running" in browser.get("/jobs").seen.words
    browser.send(browser.get(f"/jobs/{name}").seen.form("/wish"), ("wish", "cancel"))
    ended = browser.get(f"/jobs/{name}").seen
    assert ("cancelled" in ended.words, [one for one in ended.forms if "wish" in one.action]) == (True, [])
    assert [one.wish for one in cluster.jobs[name].events] == ["pause", "run", "cancel"]


def test_a_clock_that_is_ahead_of_the_brokers_does_not_stop_a_job(cluster: FakeCluster) -> None:
    with running_console(console_settings(Settings()), cluster, clock=lambda: NOW + 60_000) as browser:
        browser.send(browser.get("/groups/departures/job?kind=resend").seen.form("/jobs"))
        [name] = cluster.jobs
        cluster.jobs[name] = replace(cluster.jobs[name], progress=JobProgress("here"), beat_ms=NOW)
        assert "running" in browser.get("/jobs").seen.words
        assert "running" in browser.get(f"/jobs/{name}").seen.words
        assert json.loads(browser.get(f"/api/v1/jobs/{name}").text)["status"] == "RUNNING"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        *(({"rate": "-1"}, "rate '-1'"), ({"rate": "1e3"}, "rate"), ({"kind": "export"}, "kind")),
        *(({"since": "x"}, "since"), ({"place": "0/1", "text": "x"}, "not both")),
    ],
)
def test_a_job_that_cannot_be_is_refused(
    browser: Browser, cluster: FakeCluster, fields: dict[str, str], why: str
) -> None:
    form = browser.get("/groups/departures/job?kind=resend").seen.form("/jobs")
    kept = [one for one in form.fields if one[0] not in fields]
    refused = browser.post(form.action, [*kept, *fields.items()])
    assert (refused.status, why in refused.text.replace("&#39;", "'"), cluster.jobs) == (400, True, {})


def test_the_quarantine_is_released_by_admins_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"vera {VIEWER}\nolga {OPERATOR}\n")
    access = [
        {"role": "viewer", "people": ["vera"]},
        {"role": "admin", "people": ["olga"]},
        {"role": "operator", "people": ["vera"], "groups": ["departures"]},
    ]
    cluster = FakeCluster(letters={"departures": [letter(1)], "billing": [letter(1)]}, held=[held(1, XSS), held(2)])
    with running_over(cluster, tokens_file=file, access=access) as nobody:
        vera, olga = (Browser(nobody.address, headers=basic("x", one)) for one in (VIEWER, OPERATOR))
        seen = vera.get("/quarantine")
        assert ("&lt;script&gt;" in seen.text, seen.seen.tags.count("script"), seen.seen.places) == (True, 1, [])
        form = olga.get("/quarantine").seen.form("/release")
        assert form.targets[0] == "/quarantine/resolve", "Enter in the field of the reason releases nothing"
        assert vera.post(form.action, [("form_token", "x"), ("place", "0/1")]).status == 403
        done = olga.send(form, ("place", "0/1"))
        assert "1 released." in done.seen.words
        assert [one.place.offset for one in cluster.held] == [2]
        chosen = [*form.fields, ("place", "0/2")]
        assert vera.post("/quarantine/resolve", [*chosen, ("why", "x")]).status == 403
        assert olga.post("/quarantine/resolve", [*chosen, ("why", " ")]).status == 400
        done = olga.post("/quarantine/resolve", [*chosen, ("why", "sent by hand")])
        assert ("1 resolved." in done.seen.words, cluster.held, cluster.closed) == (
            True,
            [],
            [("olga", "sent by hand")],
        )
        made = vera.send(vera.get("/groups/departures/job?kind=resolve").seen.form("/jobs"), ("why", "known"))
        assert cluster.jobs[made.headers["location"].rpartition("/")[2]].spec.by == "vera"
        assert vera.get("/groups/billing/job?kind=resend").status == 403


def test_what_was_just_released_is_gone_from_the_page_though_its_commit_is_not_visible_yet(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.held = [held(1), held(2)]
    monkeypatch.setattr(cluster, "release", len)
    form = browser.get("/quarantine").seen.form("/release")
    shown = browser.send(form, ("place", "0/1"))
    assert "1 released." in shown.seen.words
    assert ('value="0/1"' in shown.text, 'value="0/2"' in shown.text) == (False, True)


def test_only_an_operator_of_all_groups_resends_to_the_origin_topic(tmp_path: Path) -> None:
    """All groups read it."""
    cluster = FakeCluster(letters={"departures": [letter(1)]})
    file = tmp_path / "tokens"
    file.write_text(f"vera {VIEWER}\nolga {OPERATOR}\n")
    access = [
        {"role": "operator", "people": ["vera"], "groups": ["depart*"]},
        {"role": "operator", "people": ["olga"]},
    ]
    path, to_origin = "/groups/departures/job?kind=resend", ("target", "origin")
    with running_over(cluster, tokens_file=file, access=access) as nobody:
        vera, olga = (Browser(nobody.address, headers=basic("x", one)) for one in (VIEWER, OPERATOR))
        pages = [one.get(path) for one in (vera, olga)]
        assert ['value="origin"' in one.text for one in pages] == [False, True]
        refused = vera.send(pages[0].seen.form("/jobs"), to_origin)
        assert (refused.status, cluster.jobs) == (403, {})
        assert "vera needs the role operator for all groups" in refused.seen.words
        assert vera.send(pages[0].seen.form("/jobs"), ("target", "retry")).status == 303
        assert olga.send(pages[1].seen.form("/jobs"), to_origin).status == 303
    assert [(one.spec.by, one.spec.target) for one in cluster.jobs.values()] == [("vera", "retry"), ("olga", "origin")]
