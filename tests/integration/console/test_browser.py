"""The console in a real browser on a real Kafka: the way of a person at three in the morning, and what axe finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from reconsume.operations.groups_file import change_group
from tests.integration.console.test_console import put_in, shown
from tests.integration.installation import Installation, installation
from tests.support.chromium import ChromiumPage, axe_source, chromium_page
from tests.support.consoles import Browser, console_settings, running_console
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(2)]

LETTERS = 60
XSS = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def parts(
    bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Browser, ChromiumPage]]:
    with ExitStack() as stack:
        page = stack.enter_context(chromium_page(tmp_path_factory.mktemp("chromium")))
        here = stack.enter_context(installation(bootstrap_servers))
        reports = tmp_path_factory.mktemp("reports")
        (reports / f"{XSS.replace('/', '')}.html").write_text(f"<!doctype html><title>0</title><p>a report{XSS}")
        (reports / "last-night.html").write_text("<!doctype html><html lang='en'><title>0</title><p>a report")
        settings = console_settings(
            here.settings, index_folder=tmp_path_factory.mktemp("index"), reports_folder=reports
        )
        yield here, stack.enter_context(running_console(settings)), page


def test_from_an_alert_to_a_resend_that_is_stopped_and_goes_on(
    parts: tuple[Installation, Browser, ChromiumPage],
) -> None:
    here, browser, page = parts
    group = here.unique("g")
    put_in(
        here, group, *(f"no answer from db-{number}.internal:5432 within 30 s" for number in range(LETTERS)), "other"
    )
    shown(browser, group, LETTERS + 1)
    page.go(f"http://{browser.address}/groups/{group}?lang=en")  # the address that the alert has
    page.wait_for_text("98 %")
    page.follow("no answer from <host> within <n> s", "a")
    page.follow("Resend all that match…")
    page.wait_for_text("dry run")
    assert re.search(rf"match {LETTERS} would be changed {LETTERS}", page.text), page.text
    assert here.retries(group) == []
    page.fill("rate", "2")
    page.fill("why", "the database is back")
    page.follow(f"Resend {LETTERS}", "button")
    wait_until(lambda: here.retries(group), "the first one is sent")
    page.wait_for_text("running")
    wait_until(lambda: not re.search(rf"\b0 of {LETTERS}", page.text), "the page shows progress without a reload")
    page.follow("Pause", "button")
    page.wait_for_text("paused")
    job = page.path
    sent = wait_until(lambda: settled(here, group), "it has stopped")
    assert sent
    assert sent < LETTERS
    page.follow("Resume", "button")
    page.wait_for_text("done")
    assert page.path == job, "all this time it was one page"
    wait_until(lambda: len(here.retries(group)) == LETTERS, "all are sent")
    assert len({one["ORIGIN_MESSAGE_ID"] for one in here.retries(group)}) == LETTERS, "each once"
    page.go(f"http://{browser.address}/groups/{group}/dead-letters?state=OPEN")
    wait_until(
        lambda: "other" in page.text and f"1 of {LETTERS + 1} dead letters match" in reloaded(page), "one is open"
    )
    assert page.complaints == []


def settled(here: Installation, group: str) -> int:
    """How many were sent, if two looks find the same."""
    before = len(here.retries(group))
    return before if before == len(here.retries(group)) else 0


def reloaded(page: ChromiumPage) -> str:
    page.go(str(page.evaluate("location.href")))
    return page.text


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [360, 1_200])
def test_axe_finds_nothing_serious_and_nothing_runs_over_the_edge(
    parts: tuple[Installation, Browser, ChromiumPage], tmp_path: Path, language: str, width: int
) -> None:
    here, browser, page = parts
    group, axe = here.unique("g"), axe_source(tmp_path)
    [place] = put_in(here, group, XSS, key=XSS.encode(), headers=[(XSS, XSS.encode())])
    shown(browser, group, 1)
    own = f"/groups/{quote(group)}"
    wait_until(lambda: browser.get(own).status == 200, "the console knows the group")
    paths = ["/", own, own + "/waits", own + "/dead-letters", f"{own}/dead-letters/{place}"]
    paths += [f"{own}/dead-letters/{place}/{one}" for one in ("life", "edit")]
    paths += [f"{own}/hours", f"{own}/job?kind=resend", "/jobs", "/quarantine", "/reports", "/nothing"]
    change_group(here.cluster, group, {"retryPaused": True})
    page.resize(width)
    page.complaints.clear()
    for path in paths:
        page.go(f"http://{browser.address}{path}{'&' if '?' in path else '?'}lang={language}")
        assert page.serious_findings(axe) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate("document.title") not in ("1", "2"), path
        assert page.evaluate("document.querySelectorAll('img, script:not([src^=\"/htmx.js\"])').length") == 0, path
    assert [one for one in page.complaints if "404" not in one] == []


def test_a_report_is_shown_and_runs_nothing(parts: tuple[Installation, Browser, ChromiumPage]) -> None:
    _, browser, page = parts
    page.go(f"http://{browser.address}/reports?lang=en")
    for name in ("last-night", "<script>"):
        page.follow(name, "a")
        page.wait_for_text("a report")
        assert page.evaluate("document.title") == "0"
        page.go(f"http://{browser.address}/reports?lang=en")


def test_a_dead_letter_is_edited_with_the_keyboard_and_sent(
    parts: tuple[Installation, Browser, ChromiumPage],
) -> None:
    here, browser, page = parts
    group = here.unique("g")
    [place] = put_in(here, group, "first", headers=[("trace", XSS.encode())])
    page.resize(1_200)
    page.go(f"http://{browser.address}/groups/{group}/dead-letters/{place}?lang=en")
    page.follow("Edit and resend", "a")
    page.fill("value", '{"n": 0,\n "x": "<b>"}')
    page.fill("new_name", "fixed-by")
    page.fill("new_value", "anna")
    page.follow("Check the changes", "button")
    page.wait_for_text("will be resent")
    reach(page, "button.primary")
    page.press("Enter")
    page.wait_for_text("done")
    wait_until(lambda: here.retries(group), "it is sent")
    [retry] = here.retries(group)
    assert retry.value == b'{"n": 0,\n "x": "<b>"}', "no ends of lines of a browser"
    assert (retry["trace"], retry["fixed-by"], retry["REPLAY_EDITED"]) == (XSS, "anna", "value,headers")


def list_of_one(here: Installation, browser: Browser, page: ChromiumPage) -> str:
    """Open the list of a group with one dead letter; return the group."""
    group = here.unique("g")
    put_in(here, group, "first")
    shown(browser, group, 1)
    page.resize(1_200)
    page.go(f"http://{browser.address}/groups/{group}/dead-letters?lang=en")
    return group


def test_a_keyboard_is_enough(parts: tuple[Installation, Browser, ChromiumPage]) -> None:
    here, browser, page = parts
    group = list_of_one(here, browser, page)
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reach(page, "input[name=place]")
    page.press(" ")
    reach(page, "button.primary")
    page.press("Enter")
    page.wait_for_text("will be resent")
    reach(page, "button.primary")
    page.press("Enter")
    page.wait_for_text("done")
    assert len(here.retries(group)) <= 1


def test_enter_in_the_field_for_a_reason_resolves(parts: tuple[Installation, Browser, ChromiumPage]) -> None:
    here, browser, page = parts
    group = list_of_one(here, browser, page)
    page.evaluate("document.querySelector('input[name=place]').click()")
    page.fill("why", "sent by hand")
    page.press("Enter")
    page.wait_for_text("1 of 1 changed.")
    assert here.retries(group) == []


def reach(page: ChromiumPage, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(60):
        page.press("Tab")
        if page.evaluate(f"document.activeElement.matches('{selector}')"):
            return
    pytest.fail(f"{selector} cannot be reached with Tab")
