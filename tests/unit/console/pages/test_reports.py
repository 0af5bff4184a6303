"""Reports of reconcile: the list, their pages, and files that somebody else has put there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.consoles import Browser, basic
from tests.unit.console.fake_cluster import FakeCluster, running_over

REPORT = "<!doctype html><title>Reconcile</title><script>alert(1)</script><p>ok</p>"
HOSTILE = '"><script>alert(1)</script> %2F.. ä&#'
TOKENS = {"vera": "viewer-token-0123456789", "olga": "operator-token-0123456789"}


def figures(**more: Any) -> str:
    return json.dumps({"findings": {}, "attempts": 1_234, "since": None, "until": "2026-11-22T03:17:00+00:00"} | more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "reports"
    found.mkdir()
    for number, name in enumerate(("old", "2026-11-22", HOSTILE.replace("/", ""), "bare")):
        (found / f"{name}.html").write_text(REPORT)
        os.utime(found / f"{name}.html", (1_000_000 * number, 1_000_000 * number))
    (found / "old.json").write_text(figures(findings={"LOST": 2, "EARLY": 1}))
    (found / "2026-11-22.json").write_text(figures())
    return found


def test_the_list_has_verdicts_and_the_newest_first(folder: Path) -> None:
    with running_over(FakeCluster(), reports_folder=folder) as browser:
        assert "/reports" in browser.get("/").seen.links
        page = browser.get("/reports").seen
        assert [one for one in page.words.split() if one in ("bare", "old", "2026-11-22")][:2] == ["bare", "2026-11-22"]
        assert "LOST 2, EARLY 1" in page.words
        assert "none 1,234 beginning – 2026-11-22T03:17:00+00:00" in page.words
        assert page.tags.count("script") == 1, "ours"
        told = json.loads(browser.get("/api/v1/reports").text)
        assert [one["verdict"] for one in told["reports"]] == [None, None, "ok", "findings"]
        assert (told["number"], told["reports"][3]["findings"]) == (4, {"LOST": 2, "EARLY": 1})


def test_a_page_is_given_as_it_is_and_may_do_nothing(folder: Path) -> None:
    with running_over(FakeCluster(), reports_folder=folder) as browser:
        for link in [one for one in browser.get("/reports").seen.links if one.startswith("/reports/")]:
            page = browser.get(link)
            assert (page.status, page.text) == (200, REPORT)
            policy = page.headers["content-security-policy"]
            assert {"default-src 'none'", "sandbox", "frame-ancestors 'none'"} <= set(policy.split("; "))
            assert "script" not in policy
            assert page.headers["content-type"].startswith("text/html")
            assert (page.headers["x-content-type-options"], page.headers["cache-control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize(
    "name", ["../secret", "..%2Fsecret", "%2e%2e%2fsecret", "link", "nothing", "fifo", ".hidden", "%00"]
)
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    (folder.parent / "secret.html").write_text("SECRET")
    (folder / "link.html").symlink_to(folder.parent / "secret.html")
    (folder / ".hidden.html").write_text("SECRET")
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "fifo.html")
    os.mkfifo(folder / "bare.json")
    (folder / "2026-11-22.json").unlink()
    (folder / "2026-11-22.json").symlink_to(folder.parent / "secret.html")
    (folder / os.fsdecode(b"\xff.html")).touch()
    with running_over(FakeCluster(), reports_folder=folder) as browser:
        page = browser.get(f"/reports/{name}")
        assert (page.status, "SECRET" in page.text) == (404, False)
        listed = browser.get("/reports")
        assert (listed.status, f"/reports/{name}" in listed.seen.links, "secret" in listed.text) == (200, False, False)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", '{"findings": 1}', "[" * 900, figures(findings={"A": "x"}), "x" * 2**21),
        *(figures().replace("1234", "1e999"), figures(since="\ud800"), figures(findings={"\ud800": 1})),
    ],
    ids=range(9),
)
def test_figures_that_cannot_be_read_leave_the_verdict_open(folder: Path, text: str) -> None:
    (folder / "old.json").write_text(text)
    with running_over(FakeCluster(), reports_folder=folder) as browser:
        found = json.loads(browser.get("/api/v1/reports").text)["reports"][3]
        assert (found["name"], found["verdict"]) == ("old", None)
        assert browser.get("/reports").status == 200


def test_reports_need_a_folder_that_can_be_read_and_a_role_for_all_groups(folder: Path, tmp_path: Path) -> None:
    with running_over(FakeCluster()) as browser:
        assert "/reports" not in browser.get("/").seen.links
        assert "console.reports_folder" in browser.get("/reports").seen.words
    with running_over(FakeCluster(), reports_folder=tmp_path / "nowhere") as browser:
        refused = browser.get("/reports")
        assert (refused.status, "No such file" in refused.seen.words) == (400, True)
    file = tmp_path / "tokens"
    file.write_text("\n".join(f"{name} {token}" for name, token in TOKENS.items()))
    access = [
        {"role": "viewer", "people": ["vera"]},
        {"role": "operator", "people": ["olga"], "groups": ["departures"]},
    ]
    with running_over(FakeCluster(), reports_folder=folder, tokens_file=file, access=access) as nobody:
        vera, olga = (Browser(nobody.address, headers=basic("x", one)) for one in TOKENS.values())
        for path in ("/reports", "/reports/old", "/api/v1/reports"):
            assert (nobody.get(path).status, vera.get(path).status, olga.get(path).status) == (401, 200, 403)
        assert quote("/reports") not in olga.get("/").seen.links
