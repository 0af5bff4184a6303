"""`/api/v1`: the same data, rules, sign-in and roles as the pages, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconsume.delay_levels.errors import KafkaNotReachable, WriterReplaced
from reconsume.delay_levels.wire.jobs.job_records import LetterEdit
from tests.support.consoles import Answered, Browser, basic
from tests.unit.console.fake_cluster import NOW, TOKEN, FakeCluster, letter, running_over, status_of_groups

DEPARTURES = "/api/v1/groups/departures"
VIEWER, OPERATOR = "viewer-token-0123456789", "operator-token-0123456789"


def send(browser: Browser, path: str, content: Any, **headers: str) -> Answered:
    kind = {"content-type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
    return browser.ask("POST", path, json.dumps(content).encode(), kind)


def test_what_the_pages_show_is_there_as_json(browser: Browser, cluster: FakeCluster) -> None:
    cluster.letters["a/b"] = [letter(3, group="a/b", key=b"\xff")]
    cluster.report = status_of_groups(departures=2, billing=0, **{"a/b": 1})
    overview = json.loads(browser.get("/api/v1/overview?q=DEP").text)
    assert [one["group"] for one in overview["groups"]] == ["departures"]
    assert (overview["found_groups"], overview["all_groups"]) == (1, 3)
    assert overview["groups"][0]["dead_letters"] == {"number": 2, "exact": True}
    assert overview["delay_topics"][0]["topic"] == "reconsume.DELAY.10s"
    assert (overview["leaderless"], overview["index_trouble"]) == (0, "")
    cluster.report, cluster.trouble = replace(cluster.report, leaderless=["reconsume.DLQ.secret-0"]), "IndexFull"
    told = browser.get("/api/v1/overview").text
    assert (json.loads(told)["leaderless"], json.loads(told)["index_trouble"]) == (1, "IndexFull")
    assert "secret" not in told
    group = json.loads(browser.get(DEPARTURES).text)
    assert (group["is_registered"], group["causes"], len(group["ladder"])) == (True, None, 16)
    listed = json.loads(browser.get(DEPARTURES + "/dead-letters?text=timeout&limit=1").text)
    assert [one["place"] for one in listed["letters"]] == ["0/2"]
    record = json.loads(browser.get("/api/v1/groups/a%2Fb/dead-letters/0/3").text)
    assert (record["key"], record["key_bytes"]) == (None, {"size": 1, "is_hidden": False, "base64": "/w=="})
    assert (record["key_decoded"]["format"], record["value_decoded"]["text"]) == ("hex", '{\n  "flight": 1545\n}')
    assert {one["name"] for one in record["headers"]} >= {"ORIGIN_MESSAGE_ID", "RECONSUME_TIME"}


def test_dead_letters_are_resent_by_a_job_resolved_and_opened(browser: Browser, cluster: FakeCluster) -> None:
    asked = {"kind": "resend", "group": "departures", "places": ["0/1", "0/2"]}
    planned = json.loads(send(browser, "/api/v1/jobs/plan", asked).text)
    assert (planned["count"], planned["acted"], cluster.jobs) == (2, 2, {})
    made = send(browser, "/api/v1/jobs", asked)
    assert (made.status, cluster.jobs[json.loads(made.text)["name"]].spec.records) == (201, {0: [1, 2]})
    resolved = send(browser, DEPARTURES + "/resolve", {"places": ["0/2"], "why": "known"})
    assert json.loads(resolved.text)["letters"] == [{"place": "0/2", "status": "OPEN", "is_changed": True}]
    assert json.loads(send(browser, DEPARTURES + "/reopen", {"places": ["0/2"]}).text)["changed"] == 1


def test_one_dead_letter_is_edited_and_resent(browser: Browser, cluster: FakeCluster) -> None:
    edit: dict[str, Any] = {"value_base64": "AAE=", "headers": {"fixed-by": "anna", "old": None}}
    asked = {"kind": "resend", "group": "departures", "places": ["0/1"], "edit": edit}
    assert send(browser, "/api/v1/jobs", asked).status == 201
    [job] = cluster.jobs.values()
    assert job.spec.edit == LetterEdit(b"\x00\x01", {"fixed-by": "anna", "old": None})
    for wrong in ("?", "é"):
        refused = send(browser, "/api/v1/jobs", asked | {"edit": {"value_base64": wrong}})
        assert (refused.status, "value_base64 is not base64" in refused.text) == (400, True), wrong


def test_lives_waits_and_hours_are_those_of_the_pages(browser: Browser) -> None:
    life = json.loads(browser.get(DEPARTURES + "/dead-letters/0/1/life").text)
    assert [one["kind"] for one in life["steps"]] == ["waited", "delivered", "died"]
    assert (life["steps"][0]["topic"], life["read"], life["is_whole"]) == ("reconsume.DELAY.10s", 99, False)
    waits = json.loads(browser.get(DEPARTURES + "/waits").text)
    assert waits == {"by_topic": {"reconsume.DELAY.10s": 2}, "read": 7, "is_whole": False}
    hours = json.loads(browser.get(DEPARTURES + "/hours").text)
    assert (sum(hours["by_hour"]), hours["is_exact"], hours["since_ms"]) == (7, False, NOW - 86_400_000)


def test_the_retries_of_a_group_are_paused_and_resumed(browser: Browser, cluster: FakeCluster) -> None:
    for paused in (True, False):
        assert send(browser, DEPARTURES + "/retries", {"paused": paused}).status == 200
        assert cluster.known.is_paused("departures") == paused
        assert json.loads(browser.get(DEPARTURES).text)["is_paused"] == paused
        assert json.loads(browser.get("/api/v1/overview").text)["groups"][0]["is_paused"] == paused


@pytest.mark.parametrize(
    ("path", "content", "status", "why"),
    [
        ("/groups/departures/reopen", {"places": ["x"]}, 400, "x"),
        ("/groups/departures/reopen", {"places": []}, 400, "places"),
        ("/groups/departures/reopen", {"places": ["0/1"], "typo": 1}, 400, "typo"),
        ("/groups/departures/resolve", {"places": ["0/1"], "why": " "}, 400, "reason"),
        ("/groups/nobody/reopen", {"places": ["0/1"]}, 404, "no dead-letter topic"),
        ("/jobs", {"kind": "resend", "group": "departures", "since": "soon"}, 400, "since"),
        ("/jobs", {"kind": "export", "group": "departures"}, 400, "kind"),
        ("/jobs", {"kind": "resend", "group": "departures", "places": ["0/1"], "text": "x"}, 400, "not both"),
        ("/jobs/plan", {"kind": "resolve", "group": "departures", "places": ["0/1"], "state": "OPEN"}, 400, "not both"),
        ("/jobs", {"kind": "resend", "group": "departures", "rate": 2**63}, 400, "rate 9223372036854775808"),
        ("/jobs", {"kind": "resend", "group": "departures", "max_replays": 2**63}, 400, "max_replays"),
        ("/jobs", {"kind": "resend", "group": "departures", "text": "x" * 60_000}, 400, "60,000 characters"),
        ("/groups/departures/resolve", {"places": ["0/1"], "why": "x\ud83d"}, 400, "half of a pair: '\\ud83d'"),
        ("/groups/departures/reopen", {"places": ["0/1"], "typo\ud83d": 1}, 400, "half of a pair"),
        ("/jobs", {"kind": "resolve", "group": "departures", "why": "x\ud83d"}, 400, "half of a pair"),
        ("/jobs", {"kind": "resend", "group": "a", "edit": {"headers": {"\ud83d": "x"}}}, 400, "half of a pair"),
        ("/jobs/j/wish", {"wish": "pause", "why": "x\ud83d"}, 400, "half of a pair"),
        ("/nothing", {}, 404, "Not Found"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    browser: Browser, path: str, content: Any, status: int, why: str
) -> None:
    refused = send(browser, "/api/v1" + path, content)
    told = json.loads(refused.text)
    assert (refused.status, told["status"], why in told["detail"]) == (status, status, True), told


@pytest.mark.parametrize("parameter", ["stat=RESOLVED", "header=foo", "limit=1&lable=x", "%00=1"])
def test_a_parameter_that_is_misspelt_is_refused_and_filters_not_nothing(browser: Browser, parameter: str) -> None:
    refused = browser.get(f"{DEPARTURES}/dead-letters?{parameter}")
    assert (refused.status, "is unknown; it may be one of: before, limit, text," in refused.text) == (400, True), (
        refused.text
    )
    assert browser.get(DEPARTURES + "?x=1").status == 400


def test_a_body_that_is_too_large_is_refused_as_such(browser: Browser, cluster: FakeCluster) -> None:
    asked = {"kind": "resend", "group": "departures", "text": "x" * 300_000}
    refused = send(browser, "/api/v1/jobs", asked)
    assert (refused.status, "more than 262,144 bytes" in refused.text, cluster.jobs) == (413, True, {})


def test_who_comes_at_the_same_time_as_another_person_may_try_again(browser: Browser, cluster: FakeCluster) -> None:
    cluster.error = WriterReplaced("another process has begun to do the same")
    refused = send(browser, DEPARTURES + "/reopen", {"places": ["0/1"]})
    assert (refused.status, refused.headers["retry-after"]) == (503, "5"), refused.text


def test_a_console_that_has_read_nothing_yet_does_not_say_that_nothing_is_there(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "latest", lambda: None)
    for path in ("overview", "groups/departures", "jobs"):
        refused = browser.get(f"/api/v1/{path}")
        assert (refused.status, "has just started" in refused.text) == (503, True), path


def test_kafka_that_is_away_is_a_503(browser: Browser, cluster: FakeCluster) -> None:
    cluster.error = KafkaNotReachable("away")
    refused = browser.get("/api/v1/overview")
    assert (refused.status, refused.headers["retry-after"], json.loads(refused.text)["detail"]) == (503, "5", "away")


def test_sign_in_and_roles_are_those_of_the_pages(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"vera {VIEWER}\nolga {OPERATOR}\n")
    access = [
        {"role": "viewer", "people": ["vera"]},
        {"role": "operator", "people": ["olga"], "groups": ["departures"]},
    ]
    cluster = FakeCluster(
        report=status_of_groups(departures=1, billing=1),
        letters={
            "departures": [letter(1, headers=[("card", b"1234"), ("REPLAY_ID", b"r-1")])],
            "billing": [letter(1)],
        },
    )
    body = {"places": ["0/1"]}
    job = body | {"kind": "resend", "group": "departures"}
    with running_over(cluster, tokens_file=file, access=access) as nobody:
        vera, olga = (Browser(nobody.address, headers={"authorization": f"Bearer {one}"}) for one in (VIEWER, OPERATOR))
        refused = nobody.get("/api/v1/overview")
        assert (refused.status, json.loads(refused.text)["status"]) == (401, 401)
        assert [one["group"] for one in json.loads(olga.get("/api/v1/overview").text)["groups"]] == ["departures"]
        hidden = json.loads(vera.get(DEPARTURES + "/dead-letters/0/1").text)
        assert hidden["value_decoded"] is None
        assert (hidden["key"], hidden["value"]) == (None, {"size": 16, "is_hidden": True, "base64": None})
        shown = {one["name"]: one["value"]["is_hidden"] for one in hidden["headers"]}
        assert (shown["card"], shown["REPLAY_ID"]) == (True, False)
        assert send(vera, DEPARTURES + "/reopen", body).status == 403
        assert send(olga, "/api/v1/groups/billing/retries", {"paused": True}).status == 403
        assert olga.get("/api/v1/quarantine").status == 403, "it is of all groups"
        assert send(olga, "/api/v1/quarantine/release", body).status == 403
        assert send(olga, "/api/v1/jobs", job, sec_fetch_site="cross-site").status == 403
        for path in ("/api/v1/jobs/plan", "/api/v1/jobs"):
            assert send(olga, path, job | {"target": "origin"}).status == 403, "all groups read it"
        form = {"content-type": "text/plain"}
        assert olga.ask("POST", "/api/v1/jobs", json.dumps(job).encode(), form).status == 400
        assert cluster.jobs == {}
        assert send(olga, "/api/v1/jobs", job).status == 201
        assert [one.spec.by for one in cluster.jobs.values()] == ["olga"]
    with running_over(cluster, token=TOKEN, read_only=True) as browser:
        browser.headers = basic("x", TOKEN)
        assert send(browser, "/api/v1/jobs", job).status == 403


def test_the_document_of_the_api_needs_sign_in_and_names_every_address(browser: Browser) -> None:
    document = json.loads(browser.get("/api/v1/openapi.json").text)
    assert document == json.loads(Path("docs/openapi-console.json").read_text("utf-8"))
    assert document["servers"] == [{"url": "/api/v1"}]
    assert {"/overview", "/groups/{group}", "/jobs/{name}/wish", "/quarantine/release"} <= set(document["paths"])
    statuses = {status for path in document["paths"].values() for one in path.values() for status in one["responses"]}
    assert ("400" in statuses, "422" in statuses, "ValidationError" in document["components"]["schemas"]) == (
        True,
        False,
        False,
    )


def test_an_overview_says_how_many_groups_it_leaves_out(browser: Browser, cluster: FakeCluster) -> None:
    cluster.report = status_of_groups(**{f"g{number}": 1 for number in range(501)}, other=1)
    overview = json.loads(browser.get("/api/v1/overview?q=g").text)
    assert (len(overview["groups"]), overview["found_groups"], overview["all_groups"]) == (500, 501, 502)


def test_now_is_the_time_of_the_console(browser: Browser) -> None:
    assert json.loads(browser.get("/api/v1/overview").text)["at_ms"] == NOW
