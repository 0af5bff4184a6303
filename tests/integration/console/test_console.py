"""`reconsume console` on a real Kafka: every page, a resend by its forms, what is refused, Kafka that is away."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.delay_levels.wire.properties import Header
from tests.integration.cli.test_cli import reconsume
from tests.integration.installation import Installation, installation, settings_for
from tests.support.consoles import Browser, basic, console_settings, running_console
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

XSS = "<script>alert(1)</script>"
TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="module")
def browser(here: Installation) -> Iterator[Browser]:
    with running_console(console_settings(here.settings)) as one:
        yield one


def put_in(
    here: Installation, group: str, *causes: str, key: bytes = b"PUL1545", headers: list[Header] | None = None
) -> list[str]:
    """Dead letters as schedulers write them, by way of `DELAY.0s`; gives their places."""
    for number, cause in enumerate(causes):
        ours = {
            "REAL_TOPIC": f"%DLQ%{group}",
            "RETRY_TOPIC": "flights",
            "ORIGIN_MESSAGE_ID": f"flights/0/{number}",
            "RECONSUME_TIME": "17",
            "DELAY": "0",
            "__dlq.errors.message": cause,
            "__dlq.errors.exception.class": "builtins.ValueError",
            "__dlq.errors.stacktrace": f"Traceback of {cause}",
        }
        told: list[Header] = [(name, text.encode()) for name, text in ours.items()]
        here.produce(here.settings.names.delay(0), b'{"n": %d}' % number, key=key, headers=[*(headers or []), *told])
    found = wait_until(
        lambda: len(here.dead_letters(group)) == len(causes) and here.dead_letters(group), "they are dead letters"
    )
    assert found
    return [f"{one.partition}/{one.offset}" for one in found]


def shown(browser: Browser, group: str, count: int) -> None:
    """Wait until the console shows so many dead letters of a group: its index follows Kafka."""
    path, words = f"/groups/{group}/dead-letters", f"{count} of {count} dead letters match."
    wait_until(lambda: words in browser.get(path).seen.words, f"the console shows {count}")


def test_all_pages_of_dead_letters_that_are_there(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    places = put_in(here, group, "order 17 is late", "order 18 is late", "no dep_time", headers=[("trace", b"\xff")])
    dead_letters = f"/groups/{group}/dead-letters"
    wait_until(lambda: dead_letters in browser.get(f"/?q={group}").seen.links, "the overview shows the group")
    shown(browser, group, 3)
    overview = browser.get(f"/?q={group}").seen
    for topic in ("DELAY.1s", "SEND_BACK"):
        assert f"{here.settings.topic_prefix}{topic}" in overview.words
    about = browser.get(f"/groups/{group}").seen
    assert "From 3 open dead letters" in about.words
    assert "ValueError: order <n> is late 2 67 %" in about.words
    assert len([link for link in about.links if "is+late" in link]) == 1
    assert f"%DLQ%{group}" in about.words
    listed = browser.get(f"/groups/{group}/dead-letters?text=IS+LATE").seen
    assert listed.places == [places[1], places[0]]
    assert "2 of 3 dead letters match." in listed.words
    record = browser.get(f"/groups/{group}/dead-letters/{places[1]}").seen
    for text in ("order 18 is late", "Traceback of order 18", "flights/0/1", '"n": 1', "PUL1545", "ff", "17"):
        assert text in record.words, text
    for language, text in (("en", "Dead letters"), ("zh", "死信")):
        assert text in browser.get(f"/groups/{group}/dead-letters?lang={language}").seen.words


def test_older_ones_are_reached_by_links(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    places = put_in(here, group, *(f"cause {number}" for number in range(60)))
    shown(browser, group, 60)
    found, path = [], f"/groups/{group}/dead-letters"
    while path:
        page = browser.get(path).seen
        found += page.places
        path = next((link for link in page.links if "before=" in link and "lang=" not in link), "")
    assert found == places[::-1]


def test_a_selection_becomes_a_job_and_arrives_once(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    places = put_in(here, group, "first", "second")
    shown(browser, group, 2)
    form = browser.get(f"/groups/{group}/dead-letters").seen.form("/job")
    plan = browser.send(form, ("place", places[0]))
    assert "match 1 would be changed 1" in plan.seen.words
    assert here.retries(group) == []
    run = plan.seen.form("/jobs")
    jobs = [browser.send(run).headers["location"] for _ in range(2)]
    wait_until(lambda: "resent 1" in browser.get(jobs[0]).seen.words, "the first job has sent it")
    wait_until(lambda: "left out: already resent 1" in browser.get(jobs[1]).seen.words, "the other one has not")
    wait_until(lambda: here.retries(group), "it is on the retry topic")
    browser.send(browser.send(form, ("place", places[1])).seen.form("/jobs"))
    wait_until(lambda: len(here.retries(group)) == 2, "both are")
    first, second = here.retries(group)
    assert (first.value, second.value) == (b'{"n": 0}', b'{"n": 1}')
    assert (first.key, first["RECONSUME_TIME"], first["REPLAY_TIMES"]) == (b"PUL1545", "0", "1")
    assert first["REPLAY_ID"] == jobs[0].rpartition("/")[2]
    assert re.search(r'reconsume_console_job_records_total\{outcome="sent"\} [1-9]', browser.probe("/metrics").text)
    assert len(here.dead_letters(group)) == 2, "they stay"
    again = browser.send(form, ("all", "1")).seen
    assert "Nothing to do." in again.words
    assert "left out: already resent" in again.words


def test_an_edited_dead_letter_arrives_with_its_new_value_and_the_original_stays(
    here: Installation, browser: Browser
) -> None:
    group = here.unique("g")
    [place] = put_in(here, group, "first", headers=[("old", b"1")])
    shown(browser, group, 1)
    edit = browser.get(f"/groups/{group}/dead-letters/{place}/edit").seen.form("/job")
    changed = [(name, '{"n": "<b>"}\r\n' if name == "value" else text) for name, text in edit.fields]
    more = [("removed", "old"), ("new_name", "fixed-by"), ("new_value", "anna")]
    plan = browser.post(edit.action, [*changed, *more])
    assert (plan.status, '{ "n": "<b>" }' in plan.seen.words) == (200, True)
    job = browser.send(plan.seen.form("/jobs"), ("why", "typo")).headers["location"]
    wait_until(lambda: here.retries(group), "it is on the retry topic")
    [retry] = here.retries(group)
    assert (retry.value, retry.key) == (b'{"n": "<b>"}\n', b"PUL1545")
    assert (retry["old"], retry["fixed-by"], retry["REPLAY_EDITED"]) == (None, "anna", "value,headers")
    assert [one.value for one in here.dead_letters(group)] == [b'{"n": 0}']
    wait_until(lambda: "resent 1" in browser.get(job).seen.words, "the job tells so")


def test_a_group_is_paused_and_resumed(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    put_in(here, group, "first")
    wait_until(lambda: browser.get(f"/groups/{group}").status == 200, "the console knows it")
    assert browser.send(browser.get(f"/groups/{group}").seen.form("/retries")).status == 303
    assert "The retries of this group are paused." in browser.get(f"/groups/{group}").seen.words, "at once"
    headers = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RECONSUME_TIME", b"1")]
    # Due when the scheduler has heard of the pause.
    here.produce(here.settings.names.delay(2_000), b"held", headers=headers)
    path, words = f"/groups/{group}", "due, held by a pause 1"
    wait_until(lambda: words in browser.get(path).seen.words, "the page counts it")
    assert here.retries(group) == []
    assert browser.send(browser.get(f"/groups/{group}").seen.form("/retries")).status == 303
    wait_until(lambda: here.retries(group), "it is delivered")
    words = "72 hours. Retries delivered: 1, at most 1 in an hour. Times are in UTC. The retry topic goes back"
    wait_until(lambda: words in browser.get(path + "/hours").seen.words, "it is counted")


def test_a_form_of_another_site_sends_nothing(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    [place] = put_in(here, group, "first")
    shown(browser, group, 1)
    plan = browser.send(browser.get(f"/groups/{group}/dead-letters/{place}").seen.form("/job"))
    run = plan.seen.form("/jobs")
    for headers in ({"sec_fetch_site": "cross-site"}, {"origin": "http://evil.example"}):
        assert browser.post(run.action, run.fields, **headers).status == 403
    stolen = [(name, value) for name, value in run.fields if name != "form_token"]
    assert browser.post(run.action, stolen).status == 403
    assert (
        "will be resent"
        in browser.send(browser.get(f"/groups/{group}/dead-letters").seen.form("/job"), ("all", "1")).text
    )


def test_markup_of_strangers_is_shown_as_text(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    [place] = put_in(here, group, XSS, key=XSS.encode(), headers=[(XSS, XSS.encode())])
    paths = [f"/groups/{group}", f"/groups/{group}/dead-letters", f"/groups/{group}/dead-letters/{place}"]
    shown(browser, group, 1)
    pages = [browser.get(path) for path in paths]
    pages.append(browser.send(pages[2].seen.form("/job")))
    for page in pages:
        assert page.status == 200
        assert page.seen.tags.count("script") == 1, "ours"
        assert "&lt;script&gt;alert(" in page.text


def test_what_is_not_there(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    put_in(here, group, "first")
    for path, why in (
        (f"/groups/{here.unique('nobody')}", "is not registered and has neither"),
        (f"/groups/{here.unique('nobody')}/dead-letters", "has no dead-letter topic"),
        (f"/groups/{group}/dead-letters/0/999999", "is not a dead letter"),
        (f"/groups/{group}/dead-letters/77/0", "is not a dead letter"),
    ):
        page = browser.get(path)
        assert (page.status, why in page.seen.words) == (404, True), page.seen.words
    assert browser.get(f"/groups/{group}/dead-letters?before=x").status == 400
    assert browser.get("/groups/%20/dead-letters").status == 400


def test_a_group_that_is_registered_and_has_no_topic_yet(here: Installation, browser: Browser) -> None:
    group = here.unique("g")
    here.write_groups([SubscriptionGroupConfig(group_name=group, retry_max_times=3)])
    wait_until(lambda: browser.get(f"/groups/{group}").status == 200, "the console knows it")
    page = browser.get(f"/groups/{group}").seen
    assert "This group has no dead letters" in page.words


def test_without_kafka_a_page_says_so() -> None:
    with running_console(console_settings(settings_for("127.0.0.1:9"))) as browser:
        page = wait_until(lambda: (one := browser.get("/")).status == 503 and one, "it knows that Kafka is away")
        assert page
        assert page.headers["retry-after"] == "5"
        assert "Kafka did not answer" in page.seen.words
        assert "Traceback" not in page.text
        assert browser.probe("/readyz").status == 200


def test_an_installation_that_is_not_there(bootstrap_servers: str) -> None:
    with running_console(console_settings(settings_for(bootstrap_servers))) as browser:
        wait_until(lambda: browser.get("/").status == 404, "it knows that nothing is there")
        assert "reconsume topics apply" in browser.get("/").seen.words


@contextmanager
def command(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], Browser, list[str]]]:
    """The command as a process of its own, a browser before it, and what it says."""
    line = [sys.executable, "-m", "reconsume", "console", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"]
    said: list[str] = []
    with subprocess.Popen(
        [*line, *arguments], stderr=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        assert process.stderr is not None
        found = None
        for text in process.stderr:
            said.append(text)
            if found := re.search(r"pages: http://(\S+), management: http://(\S+)", text):
                break
        try:
            assert found, said
            yield process, Browser(found[1], found[2]), said
        finally:
            process.send_signal(signal.SIGTERM)
            ended = process.wait(PATIENCE)
            said.append(process.stderr.read())
    assert ended == 0
    assert "the console has stopped" in said[-1]
    assert "Traceback" not in "".join(said)


def test_the_command_serves_until_it_is_told_to_end(here: Installation) -> None:
    environment = {
        "RECONSUME_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers,
        "RECONSUME_TOPIC_PREFIX": here.settings.topic_prefix,
        "RECONSUME_CONSOLE__TOKEN": TOKEN,
    }
    group = here.unique("g")
    put_in(here, group, "first")
    with command("--read-only", "--hide-values", **environment) as (_, browser, said):
        assert browser.get("/").status == 401
        browser.headers = basic("anna", TOKEN)
        page = browser.get(f"/groups/{group}/dead-letters")
        assert (page.status, page.seen.places) == (200, [])
        assert "PUL1545" not in page.text
        assert browser.post(f"/groups/{group}/job", [("place", "0/0")]).status == 403
        assert 'page="dead_letters",status="200"' in browser.probe("/metrics").text
    assert TOKEN not in "".join(said)


def test_the_command_ends_at_once_while_a_page_waits_for_kafka() -> None:
    with (
        command("--bootstrap-servers", "127.0.0.1:9") as (process, browser, _),
        socket.create_connection(browser.address.split(":")) as waiting,  # type: ignore[arg-type]  # a port as text
    ):
        waiting.sendall(b"GET /groups/g/dead-letters HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert browser.get("/nothing").status == 404
        assert browser.probe("/livez").status == 200
        os.kill(process.pid, signal.SIGTERM)
        assert b"503" in waiting.recv(1_000)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--listen", "0.0.0.0:0"], "setting console.listen.host: other machines can reach 0.0.0.0"),
        (
            ["--token-file", "/nowhere"],
            "setting console.token_file names a file that cannot be read: /nowhere: No such file",
        ),
    ],
)
def test_a_command_line_that_cannot_work(arguments: list[str], why: str) -> None:
    run = reconsume("console", *arguments)
    assert (run.returncode, why in run.stderr, "Traceback" in run.stderr) == (2, True, False), run.stderr
