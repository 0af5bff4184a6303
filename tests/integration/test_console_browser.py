"""The console in a real browser on a real Kafka: the way of a person at three in the morning, and what axe finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.installation import Installation, installation
from tests.integration.test_console import put_in, shown
from tests.support.chromium import ChromiumPage, axe_source, chromium_page
from tests.support.consoles import Browser, console_settings, running_console
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.timeout(600)]

LETTERS = 40
XSS = '"><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def parts(
    bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Installation, Browser, ChromiumPage]]:
    with ExitStack() as stack:
        page = stack.enter_context(chromium_page(tmp_path_factory.mktemp("chromium")))
        here = stack.enter_context(installation(bootstrap_servers))
        settings = console_settings(here.settings, index_folder=tmp_path_factory.mktemp("index"))
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
    wait_until(lambda: here.retries(group), 60, "the first one is sent")
    page.wait_for_text("running")
    wait_until(lambda: not re.search(rf"\b0 of {LETTERS}", page.text), 60, "the page shows progress without a reload")
    page.follow("Pause", "button")
    page.wait_for_text("paused")
    job = page.path
    sent = wait_until(lambda: settled(here, group), 60, "it has stopped")
    assert sent
    assert sent < LETTERS
    page.follow("Resume", "button")
    page.wait_for_text("done")
    assert page.path == job, "all this time it was one page"
    wait_until(lambda: len(here.retries(group)) == LETTERS, 60, "all are sent")
    assert len({one["ORIGIN_MESSAGE_ID"] for one in here.retries(group)}) == LETTERS, "each once"
    page.go(f"http://{browser.address}/groups/{group}/dead-letters?state=OPEN")
    wait_until(lambda: "other" in page.text and "Dead letters that match: 1" in reloaded(page), 60, "one is open")
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
    wait_until(lambda: browser.get(own).status == 200, 60, "the console knows the group")
    paths = ["/", own, own + "/waits", own + "/dead-letters", f"{own}/dead-letters/{place}"]
    paths += [f"{own}/dead-letters/{place}/life", f"{own}/job?kind=resend", "/jobs", "/quarantine", "/nothing"]
    page.resize(width)
    page.complaints.clear()
    for path in paths:
        page.go(f"http://{browser.address}{path}{'&' if '?' in path else '?'}lang={language}")
        assert page.serious_findings(axe) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate("document.title") not in ("1", "2"), path
        assert page.evaluate("document.querySelectorAll('img, script:not([src^=\"/htmx.js\"])').length") == 0, path
    assert [one for one in page.complaints if "404" not in one] == []


def test_a_keyboard_is_enough(parts: tuple[Installation, Browser, ChromiumPage]) -> None:
    here, browser, page = parts
    group = here.unique("g")
    put_in(here, group, "first")
    shown(browser, group, 1)
    page.resize(1_200)
    page.go(f"http://{browser.address}/groups/{group}/dead-letters?lang=en")
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reach(page, "input[name=place]")
    page.press(" ")
    reach(page, "button.primary")
    page.press("Enter")
    page.wait_for_text("Will be sent: 1 of 1.")
    reach(page, "button.primary")
    page.press("Enter")
    page.wait_for_text("Sent now: 1 of 1")


def reach(page: ChromiumPage, selector: str) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(60):
        page.press("Tab")
        if page.evaluate(f"document.activeElement.matches('{selector}')"):
            return
    pytest.fail(f"{selector} cannot be reached with Tab")
