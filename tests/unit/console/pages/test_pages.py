"""The pages over real sockets, with a cluster in memory: what is shown, who may look, what does not work."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from reconsume.bridge.reading.counting import Count
from reconsume.delay_levels.errors import (
    IllegalSetting,
    KafkaNotReachable,
    KafkaRefused,
    SubscriptionGroupNotExist,
    TopicNotReady,
    WriterReplaced,
)
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_index.letters import IndexDamaged
from reconsume.operations.lives.group_hours import RetryHours
from tests.support.consoles import Browser, basic
from tests.support.schema_registry import running_registry
from tests.support.waiting import wait_until
from tests.unit.console.fake_cluster import (
    LETTERS,
    NOW,
    TOKEN,
    FakeCluster,
    letter,
    running_over,
    status_of_groups,
)

XSS = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
PATHS = [
    "/",
    "/groups/departures",
    "/groups/departures/waits",
    LETTERS,
    LETTERS + "/0/1",
    LETTERS + "/0/1/life",
    LETTERS + "/0/1/edit",
    "/groups/departures/hours",
    "/jobs",
    "/quarantine",
    "/groups/nobody",
    "/nothing",
]


def unbalanced(text: str) -> list[str]:
    """The elements that are left open, or closed in another order."""
    wrong, within = [], list[str]()
    for end, tag in re.findall(r"<(/?)([a-z0-9]+)[^>]*?(?<!/)>", text):
        if end and (not within or within.pop() != tag):
            wrong.append(tag)
        elif not end and tag not in ("meta", "link", "input", "path"):
            within.append(tag)
    return wrong + within


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_is_whole_in_both_languages(browser: Browser, path: str, language: str) -> None:
    page = browser.get(f"{path}?lang={language}")
    assert page.status == (404 if "no" in path else 200), page.text
    seen = page.seen
    assert page.text.startswith("<!doctype html>")
    assert page.text.rstrip().endswith("</html>")
    assert f'<html lang="{"zh-CN" if language == "zh" else "en"}">' in page.text
    assert seen.tags.count("h1") == 1
    assert unbalanced(page.text) == []
    assert not {"style", "iframe", "object"} & set(seen.tags)
    assert re.findall("<script[^>]*>", page.text) == re.findall('<script src="/htmx.js[^>]*defer>', page.text)
    assert seen.tags.count("script") == 1
    assert not [name for name in seen.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "#main")) for link in seen.links)
    assert page.headers["set-cookie"].lower().startswith(f"lang={language}; httponly;")
    assert "samesite=strict" in page.headers["set-cookie"].lower()


@pytest.mark.parametrize("path", [*PATHS, "/style.css", "/icon.svg"])
def test_every_answer_tells_browsers_to_run_nothing(browser: Browser, path: str) -> None:
    headers = browser.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "connect-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self'",
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'none'",
    }
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert ("no-store" in headers["cache-control"]) == (path not in ("/style.css", "/icon.svg"))
    assert "server" not in headers


def test_the_language_is_that_of_the_browser_until_somebody_chooses(browser: Browser) -> None:
    assert 'lang="zh-CN"' in browser.get("/", accept_language="zh-TW,en;q=0.5").text
    assert 'lang="en"' in browser.get("/").text
    kept = browser.get("/?lang=zh").headers["set-cookie"].partition(";")[0]
    assert 'lang="zh-CN"' in browser.get("/", cookie=kept, accept_language="en").text
    chosen = browser.get("/?lang=zh&q=x").seen.links
    assert "/?q=x&lang=en" in chosen
    assert all("lang=zh" in link for link in chosen if link not in ("/?q=x&lang=en", "#main"))


def test_the_overview_filters_groups_and_says_how_many(browser: Browser, cluster: FakeCluster) -> None:
    cluster.report = status_of_groups(departures=2, arrivals=1_234)
    page = browser.get("/?q=arr").seen
    assert "Groups: 1 of 2" in page.words
    assert "1,234" in page.words
    assert "/groups/arrivals" in page.links
    assert "/groups/departures" not in page.links
    assert "in 8s" in page.words


def test_the_overview_is_refreshed_only_where_the_address_asks(browser: Browser) -> None:
    assert "http-equiv" not in browser.get("/").text
    assert 'hx-trigger="every 5s"' in browser.get("/").text
    page = browser.get("/?refresh=5&q=x")
    assert "hx-trigger" not in page.text + browser.get("/?live=off").text
    assert '<meta http-equiv="refresh" content="5">' in page.text
    assert "/?q=x" in page.seen.links
    for odd in ("0", "1", "99999", "x", "-5", "５５"):
        assert "http-equiv" not in browser.get("/?refresh=" + quote(odd)).text


def test_estimates_and_the_quarantine_are_told(browser: Browser, cluster: FakeCluster) -> None:
    assert "could not deliver" not in browser.get("/").seen.words
    cluster.report = replace(cluster.report, quarantined=Count(501, exact=False))
    page = browser.get("/").seen
    assert "~501" in page.words
    assert "estimated from offsets" in page.words
    assert "or a partition has no leader" in page.words
    assert "could not deliver" in page.words
    assert "/quarantine" in page.links


def test_a_group_shows_its_waits_its_topics_and_its_causes(browser: Browser) -> None:
    page = browser.get("/groups/departures").seen
    for text in ("%RETRY%departures", "reconsume.DLQ.departures", "reconsume.DELAY.2h", "retryMaxTimes", "16"):
        assert text in page.words
    assert "From the newest 2 dead letters" in page.words
    assert f"{LETTERS}?text=no+dep_time" in page.links


def test_a_group_without_dead_letters(browser: Browser, cluster: FakeCluster) -> None:
    cluster.letters.clear()
    assert "This group has no dead letters" in browser.get("/groups/departures").seen.words
    missing = browser.get(LETTERS)
    assert (missing.status, "has no dead-letter topic" in missing.text) == (404, True)


def test_a_group_of_any_name_has_its_pages(browser: Browser, cluster: FakeCluster) -> None:
    name = "a/b c%2F?#ü"
    cluster.report = status_of_groups(**{name: 1})
    cluster.letters[name] = [letter(3, group=name)]
    [link] = [one for one in browser.get("/").seen.links if one.startswith("/groups/") and "dead-letters" not in one]
    assert browser.get(link).status == 200
    page = browser.get(link + "/dead-letters")
    assert page.status == 200
    [record] = [one for one in page.seen.links if one.endswith("/0/3")]
    shown = browser.get(record)
    assert "reconsume dlq show 'a/b c%2F?#ü' 0/3" in shown.seen.words
    plan = browser.send(shown.seen.form("/job"))
    assert browser.send(plan.seen.form("/jobs")).status == 303
    assert [(one.spec.group, one.spec.records) for one in cluster.jobs.values()] == [(name, {0: [3]})]


def test_a_filter_is_an_address(browser: Browser, cluster: FakeCluster) -> None:
    page = browser.get(LETTERS + "?text=timeout&key=PUL1545&since=2h&message_id=flights/0/2")
    assert "1 shown. 2 read for this page. This is the oldest." in page.seen.words
    assert page.seen.places == ["0/2"]
    assert cluster.asked[-1] == (
        DeadLetterFilter(text="timeout", key="PUL1545", message_id="flights/0/2", since_ms=NOW - 7_200_000),
        None,
        50,
    )
    assert ("text", "timeout") in page.seen.forms[0].fields
    cluster.letters["departures"] = [
        letter(0, headers=[("tenant", b"acme"), ("tenant", b"b=c")]),
        letter(1, headers=[("tenant", b"acme")]),
        letter(2),
    ]
    assert browser.get(LETTERS + "?with_header=tenant%3Db=c").seen.places == ["0/0"]
    page = browser.get(LETTERS + "?with_header=tenant%3Dacme&origin_topic=flights")
    assert page.seen.places == ["0/1"]
    assert ("with_header", "tenant=acme") in page.seen.forms[0].fields
    assert browser.get(LETTERS + "?origin_topic=gates").seen.places == []
    wrong = browser.get(LETTERS + "?since=yesterday")
    assert (wrong.status, "write a time such as" in wrong.text) == (400, True)


def test_fields_of_a_filter_hold_what_was_typed_exactly(browser: Browser) -> None:
    typed = {name: f"\x1b[31m{name}\u202e" for name in ("text", "key", "message_id", "origin_topic", "label")}
    typed["with_header"] = "tenant=\x1b[31m"
    page = browser.get(f"{LETTERS}?{urlencode(typed)}").seen
    assert typed.items() <= dict(page.forms[0].fields).items()
    page = browser.get("/?" + urlencode({"q": typed["label"]})).seen
    assert ("q", typed["label"]) in page.forms[0].fields


def test_older_ones_are_a_link_away_with_the_same_filter(browser: Browser, cluster: FakeCluster) -> None:
    cluster.letters["departures"] = [letter(number) for number in range(51)]
    page = browser.get(LETTERS + "?text=dep_time").seen
    assert len(page.places) == 50
    assert "There are older ones." in page.words
    [older] = [link for link in page.links if "before=" in link]
    assert older == f"{LETTERS}?before=0%3A17&text=dep_time"
    after = browser.get(older).seen
    assert cluster.asked[-1][1] == "0:17"
    assert f"{LETTERS}?text=dep_time" in after.links


def test_a_record_shows_all_that_it_has(browser: Browser, cluster: FakeCluster) -> None:
    headers = [("trace", b"\xff\x00"), ("trace", None), ("card", "卡".encode())]
    cluster.letters["departures"].append(letter(9, value=b'{"a": 1.10}', headers=headers))
    page = browser.get(LETTERS + "/0/9").seen.words
    for text in (
        *("flights/0/9", "reconsume.DLQ.departures/0/9", "2026-11-21 20:00:00 UTC", "ff 00", "none (null)", "卡"),
        *('"a": 1.10', "7b 22 61 22 3a 20 31 2e 31 30 7d", "18 bytes", "unknown", "(51m ago)"),
        *("reconsume dlq show departures 0/9", "reconsume dlq resend departures 0/9"),
    ):
        assert text in page, text


@pytest.mark.parametrize("path", [f"{LETTERS}/0/99", f"{LETTERS}/9/1"])
def test_a_record_that_is_not_there(browser: Browser, path: str) -> None:
    missing = browser.get(path)
    assert (missing.status, "is not a dead letter" in missing.text) == (404, True)


def test_places_that_kafka_cannot_have(browser: Browser) -> None:
    assert browser.get(f"{LETTERS}/0/{2**70}").status == 400
    assert browser.get(f"{LETTERS}/x/1").status == 404
    long = "9" * 5_000  # Python converts at most 4,300 digits
    for path in (f"0/{long}", f"{long}/0", f"0/{long}/life", f"0/{long}/edit"):
        refused = browser.get(f"{LETTERS}/{path}")
        assert (refused.status, "write PARTITION/OFFSET" in refused.seen.words) == (400, True), path
        assert browser.get(f"/api/v1{LETTERS}/{path.removesuffix('/edit')}").status == 400, path


@pytest.mark.parametrize("name", ["path", "self", "group", "here"])
def test_any_name_may_stand_in_the_query_of_an_address(browser: Browser, name: str) -> None:
    for path in ("/", "/groups/departures", LETTERS):
        page = browser.get(f"{path}?{name}=x&lang=zh")
        assert (page.status, f"{name}=x" in page.text) == (200, True), path


def test_strangers_markup_is_text_everywhere(browser: Browser, cluster: FakeCluster) -> None:
    evil = letter(
        7,
        XSS,
        key=XSS.encode(),
        value=XSS.encode(),
        exception_class=XSS,
        headers=[(XSS, XSS.encode()), ("__dlq.errors.stacktrace", XSS.encode())],
        group=XSS,
    )
    cluster.letters[XSS] = [evil]
    cluster.report = status_of_groups(**{XSS: 1})
    [link] = [one for one in browser.get("/").seen.links if one.startswith("/groups/") and "dead-letters" not in one]
    record = browser.get(link + "/dead-letters/0/7")
    plan = browser.send(record.seen.form("/job"))
    made = browser.send(plan.seen.form("/jobs"))
    done, edit = browser.get(made.headers["location"]), browser.get(link + "/dead-letters/0/7/edit")
    edited = browser.send(edit.seen.form("/job"), ("new_name", XSS + "2"), ("new_value", XSS))
    asked = browser.get(f"{link}/dead-letters?since={link.rpartition('/')[2]}&q={link.rpartition('/')[2]}")
    pages = [
        browser.get("/"),
        browser.get(link),
        browser.get(link + "/dead-letters"),
        record,
        plan,
        done,
        edit,
        edited,
        asked,
    ]
    pages.append(browser.get("/?q=" + link.rpartition("/")[2]))
    for page in pages:
        assert "img" not in page.seen.tags, page.text
        assert page.seen.tags.count("script") == 1, "ours"
        assert "onerror" not in page.seen.attributes
        assert "&lt;script&gt;" in page.text or "%3Cscript%3E" in page.text
    assert record.text.count("&lt;script&gt;alert(1)") >= 6


def test_what_cannot_be_seen_is_not_let_through(browser: Browser, cluster: FakeCluster) -> None:
    cluster.letters["departures"] = [letter(1, "safe\u202etxt.exe\x00")]
    assert "safe\\u202etxt.exe\\u0000" in browser.get(LETTERS).text


def test_with_hidden_values_pages_show_sizes_alone(cluster: FakeCluster) -> None:
    cluster.letters["departures"] = [letter(1, key=b"SECRET-KEY", value=b"SECRET", headers=[("card", b"SECRET")])]
    with running_over(cluster, hide_values=True) as browser:
        record = browser.get(LETTERS + "/0/1")
        plan = browser.send(record.seen.form("/job"))
        assert LETTERS + "/0/1/edit" not in record.seen.links
        assert browser.get(LETTERS + "/0/1/edit").status == 403
        assert browser.send(record.seen.form("/job"), ("edit", "1"), ("value", "x")).status == 403
        for page in (browser.get(LETTERS), record, plan):
            assert page.status == 200
            assert "SECRET" not in page.text
            assert b"SECRET".hex(" ") not in page.text
            assert "hidden, 10 bytes" in page.seen.words


@pytest.mark.parametrize(
    ("error", "status", "why"),
    [
        (KafkaNotReachable("listing the topics: no answer from Kafka"), 503, "Kafka did not answer"),
        (WriterReplaced("another process has begun to do the same"), 503, "not possible at the moment"),
        (IndexDamaged("the index is filled again"), 503, "not possible at the moment"),
        (KafkaRefused("reading: no right to use the topic"), 403, "You may not do this"),
        (TopicNotReady("no topic that starts with reconsume."), 404, "This does not exist"),
        (SubscriptionGroupNotExist("not registered"), 404, "This does not exist"),
        (IllegalSetting("a cursor"), 400, "invalid value"),
    ],
)
@pytest.mark.parametrize("path", ["/", LETTERS, LETTERS + "/0/1"])
def test_what_does_not_work_is_told_on_a_page(
    browser: Browser, cluster: FakeCluster, path: str, error: Exception, status: int, why: str
) -> None:
    cluster.error = error
    page = browser.get(path)
    assert page.status == status
    assert why in page.seen.words
    assert str(error) in page.seen.words
    assert ("retry-after" in page.headers) == (status == 503)


@pytest.mark.parametrize(
    ("error", "status"),
    [(KafkaNotReachable("away"), 503), (KafkaRefused("no right"), 403), (SubscriptionGroupNotExist("deleted"), 404)],
)
@pytest.mark.parametrize("path", ["/", "/groups/departures"])
def test_an_update_of_a_page_that_fails_reloads_it_and_the_error_reloads_until_kafka_answers(
    browser: Browser, cluster: FakeCluster, path: str, error: Exception, status: int
) -> None:
    cluster.error = error
    update = browser.get(path, hx_request="true", hx_target="live")
    assert (update.status, update.headers.get("hx-refresh")) == (status, "true")
    part = browser.get("/groups/departures/hours", hx_request="true", hx_target="hours")
    assert (part.status, "hx-refresh" in part.headers) == (status, False), "its link stays on the page"
    page = browser.get(path)
    assert (page.status, "hx-refresh" in page.headers) == (status, False)
    assert ('http-equiv="refresh" content="5"' in page.text) == (status == 503)


def test_an_error_reloads_as_often_as_the_address_asks_and_sends_no_form_again(
    browser: Browser, cluster: FakeCluster
) -> None:
    form = browser.get(LETTERS).seen.form("/job")
    cluster.error = KafkaNotReachable("away")
    assert browser.get("/?refresh=30").text.count('http-equiv="refresh" content="30"') == 1
    assert 'http-equiv="refresh"' not in browser.send(form, ("place", "0/1")).text


@pytest.mark.parametrize("path", ["/", "/groups/departures", "/jobs"])
def test_an_update_of_a_page_reloads_it_where_a_new_console_has_read_nothing_yet(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(cluster, "latest", lambda: None)
    update = browser.get(path, hx_request="true", hx_target="live")
    assert (update.status, update.headers.get("hx-refresh")) == (200, "true"), "nothing takes the place of the figures"


def test_an_error_that_nobody_has_thought_of_shows_no_traceback(
    browser: Browser, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.error = ZeroDivisionError("secret")
    page = browser.get("/")
    assert page.status == 500
    assert "ZeroDivisionError" in page.seen.words
    assert "Traceback" not in page.text
    assert "secret" not in page.text
    wait_until(lambda: any(one.exc_info for one in caplog.records), "the log has it")


def test_other_methods_are_refused(browser: Browser) -> None:
    assert browser.get("/groups/departures/resolve").status == 405
    assert browser.ask("DELETE", "/").status == 405
    assert browser.ask("HEAD", "/").status == 200


def test_a_console_of_this_machine_answers_to_no_other_name(browser: Browser, cluster: FakeCluster) -> None:
    refused = browser.get("/", host="evil.example:15083")
    assert (refused.status, "console.allowed_hosts" in refused.text) == (421, True)
    assert browser.get("/", host="localhost:1").status == 200
    assert browser.get("/style.css", host="evil.example").status == 421
    with running_over(cluster, allowed_hosts=["console.example"]) as other:
        assert other.get("/", host="console.example").status == 200


def test_beyond_this_machine_a_token_is_needed(cluster: FakeCluster, tmp_path: Path) -> None:
    beyond = {"listen": {"host": "0.0.0.0", "port": 0}}
    with (
        pytest.raises(IllegalSetting, match=r"setting console\.listen\.host: other machines can reach 0\.0\.0\.0"),
        running_over(cluster, **beyond),
    ):
        pass
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with running_over(cluster, token_file=file, **beyond) as browser:
        browser.address = "127.0.0.1:" + browser.address.rpartition(":")[2]
        for headers in ({}, basic("anna", TOKEN[:-1]), {"authorization": f"Bearer {TOKEN[1:]}"}):
            refused = browser.ask("GET", "/", headers=headers)
            assert refused.status == 401
            assert refused.headers["www-authenticate"].startswith("Basic realm=")
            assert "departures" not in refused.text
        assert browser.get("/style.css").status == 200, "the page that asks for the token is to be readable"
        browser.headers = basic("anna", TOKEN)
        assert browser.get("/", host="console.example").status == 200


def test_the_management_port_tells_that_it_lives_and_what_was_asked(cluster: FakeCluster) -> None:
    cluster.error = KafkaNotReachable("away")
    with running_over(cluster) as browser:
        assert browser.get("/").status == 503
        assert browser.get("/nothing").status == 404
        assert [browser.probe(path).status for path in ("/livez", "/readyz")] == [200, 200], "without Kafka too"
        metrics = browser.probe("/metrics").text
    assert 'reconsume_console_requests_total{page="overview",status="503"} 1.0' in metrics
    assert 'reconsume_console_requests_total{page="other",status="404"} 1.0' in metrics
    assert "reconsume_build_info{" in metrics


def test_an_address_that_is_taken_is_told_at_once(cluster: FakeCluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                IllegalSetting, match=rf"setting console\.listen: 127\.0\.0\.1:{port} is taken by another process"
            ),
            running_over(cluster, listen={"port": port}),
        ):
            pass


def test_a_group_is_paused_and_resumed(browser: Browser, cluster: FakeCluster) -> None:
    assert "paused" not in browser.get("/").seen.words
    page = browser.get("/groups/departures").seen
    assert browser.send(page.form("/retries")).headers["location"] == "/groups/departures"
    assert 'reconsume_console_requests_total{page="pause",status="303"} 1.0' in browser.probe("/metrics").text
    [before] = cluster.report.groups
    cluster.report = replace(cluster.report, groups=[replace(before, parked=Count(1_234, exact=True))])
    page = browser.get("/groups/departures").seen
    assert "The retries of this group are paused." in page.words
    assert "due, held by a pause 1,234" in page.words
    assert "so resent messages wait too" in browser.get("/groups/departures/job").seen.words
    overview = browser.get("/").seen.words
    for text in ("paused groups 1", "due, held by a pause 1,234", "departures paused"):
        assert text in overview, text
    browser.send(page.form("/retries"))
    assert not cluster.known.is_paused("departures")


def test_a_group_shows_its_retries_by_hour_and_how_far_back_they_go(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 'hx-get="/groups/departures/hours"' in browser.get("/groups/departures").text
    words = browser.get("/groups/departures/hours").seen.words
    assert "72 hours. Retries delivered: ~7, at most 4 in an hour." in words
    assert "The retry topic goes back to 2026-11-21 20:00:00 UTC (1d ago)" in words
    # The number of the highest bar, then noons and midnights.
    assert "4 11-20 12:00 11-21 12:00 11-22 72 hours." in words
    for is_exact in (True, False):
        none = RetryHours(NOW, [0] * 72, is_exact=is_exact, since_ms=None)
        monkeypatch.setattr(cluster, "retry_hours", lambda _group, none=none: none)
        words = browser.get("/groups/departures/hours").seen.words
        assert ("The retry topic has no records." in words) == is_exact
        assert ("or a partition has no leader" in words) != is_exact


def test_a_record_is_decoded_by_the_schema_registry() -> None:
    with running_registry() as registry:
        number = registry.add({"type": "string"})
        value = b"\0" + number.to_bytes(4, "big") + b"\x10" + b"<i>PUL17"[:8]
        evil = letter(1, value=value, key=b"\0\0\0\xff\xffx")
        with running_over(FakeCluster(letters={"departures": [evil]}), schema_registry=registry.url) as browser:
            page = browser.get(LETTERS + "/0/1")
    assert f"Avro, shown as JSON (schema {number})" in page.seen.words
    assert '"<i>PUL17"' in page.seen.words
    assert "i" not in page.seen.tags
    assert "Not decoded: schema 65535 is unavailable" in page.seen.words
