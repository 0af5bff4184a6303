"""The pages with the index of dead letters: what is open, since when, and why."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.operations.dead_letter_index.letters import IndexedLetter
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.lives.group_waits import GroupWaits
from tests.support.consoles import Browser
from tests.unit.console.fake_cluster import LETTERS, NOW, FakeCluster, status_of_groups

MINUTE_MS = 60_000


def indexed(offset: int, stored_ms: int, label: str, group: str = "departures") -> IndexedLetter:
    return IndexedLetter(
        key=DeadLetterKey(f"reconsume.DLQ.{group}", 0, offset, stored_ms),
        group=group,
        message_id=f"flights/0/{offset}",
        born_ms=None,
        origin_topic="flights",
        record_key=b"k",
        label=label,
        exception_class=None,
        cause=label,
        attempt=17,
        replay_times=0,
        size=3,
        headers={},
    )


def fill(cluster: FakeCluster) -> None:
    """50 of one cause since an hour and a half ago, two of another one, one of which is resolved."""
    cluster.store = DeadLetterStore()
    slow = [indexed(number, NOW - 90 * MINUTE_MS + number * MINUTE_MS, "TimeoutError") for number in range(50)]
    rare = [indexed(50, NOW - 50 * 60 * MINUTE_MS, "KeyError"), indexed(51, NOW - 5 * MINUTE_MS, "KeyError")]
    resolved = DeadLetterState("RESOLVED", NOW, "bob", "known")
    cluster.store.add([*slow, *rare], {rare[1].key: resolved}, {})


def test_the_overview_counts_open_letters_and_sorts_by_them(browser: Browser, cluster: FakeCluster) -> None:
    cluster.report = status_of_groups(arrivals=900, departures=52)
    fill(cluster)
    words = browser.get("/").seen.words
    assert "open dead letters 51" in words
    assert words.index("departures") < words.index("arrivals"), "only these wait for a person"
    assert "departures 51 19 50 2d 2h ago 52" in words
    assert "arrivals 0 0 0 900" in words


def test_the_overview_says_that_the_index_is_being_filled(browser: Browser, cluster: FakeCluster) -> None:
    cluster.left = 1_234_567
    words = browser.get("/").seen.words
    assert "The index of dead letters is being built: 1,234,567 records left." in words
    assert "new in 1 h" not in words
    cluster.trouble = "IndexFull: raise <console.index_mib>"
    words = browser.get("/").seen.words
    assert "The index cannot be brought up to date: IndexFull: raise <console.index_mib>" in words


def test_pages_with_counts_say_that_partitions_have_no_leader(browser: Browser, cluster: FakeCluster) -> None:
    fill(cluster)
    cluster.trouble = "KafkaNotReachable: without a leader: 1"
    cluster.report = replace(cluster.report, leaderless=["reconsume.DLQ.secret-0"])
    for address in ("/", "/groups/departures"):
        page = browser.get(address)
        assert "The index cannot be brought up to date: KafkaNotReachable: without a leader: 1" in page.seen.words
        assert "Partitions without a leader, whose records are not counted: 1." in page.seen.words
        assert "secret" not in page.text
    assert "Partitions without a leader" in browser.get("/jobs").seen.words


def test_a_group_shows_the_share_of_each_cause_and_since_when(browser: Browser, cluster: FakeCluster) -> None:
    fill(cluster)
    page = browser.get("/groups/departures").seen
    assert "From 51 open dead letters" in page.words
    assert "TimeoutError 50 98 % 2026-11-22 18:30:00 UTC (1h 30m ago) 41m ago" in page.words
    [link] = [one for one in page.links if "label=TimeoutError" in one]
    letters = browser.get(link).seen
    assert "50 of 52 dead letters match." in letters.words
    assert letters.places == [f"0/{number}" for number in range(49, -1, -1)]


def test_a_group_with_very_many_causes_shows_as_many_open_letters_as_the_overview(
    browser: Browser, cluster: FakeCluster
) -> None:
    cluster.report = status_of_groups(departures=1_500)
    cluster.store = DeadLetterStore()
    cluster.store.add(
        [indexed(number, NOW - number, f"KeyError: x{max(0, number - 50)}") for number in range(1_500)], {}, {}
    )
    assert "open dead letters 1,500" in browser.get("/").seen.words
    page = browser.get("/groups/departures").seen.words
    assert "open dead letters 1,500" in page
    assert "KeyError: x0 51 3 %" in page
    assert "The page shows the first 1,000." in page
    causes = json.loads(browser.get("/api/v1/groups/departures").text)["causes"]
    assert (causes[0]["number"], causes[0]["share"]) == (51, 51 / 1_500)


def test_older_ones_of_the_index_are_a_link_away(browser: Browser, cluster: FakeCluster) -> None:
    fill(cluster)
    first = browser.get(LETTERS).seen
    [older] = [one for one in first.links if "before=" in one]
    second = browser.get(older).seen
    assert len(first.places) == 50
    assert second.places == ["0/0", "0/50"]
    refused = browser.get(LETTERS + "?before=ix")
    assert (refused.status, "is not the end of a page" in refused.text) == (400, True)


def test_a_search_in_the_index_says_what_it_leaves_out(browser: Browser, cluster: FakeCluster) -> None:
    fill(cluster)
    assert "4 KiB" not in browser.get(LETTERS).seen.words
    assert "This searches up to 4 KiB of headers" in browser.get(LETTERS + "?with_header=a%3Db").seen.words


def test_a_group_without_open_letters(browser: Browser, cluster: FakeCluster) -> None:
    cluster.store = DeadLetterStore()
    assert "This group has no open dead letters." in browser.get("/groups/departures").seen.words
    cluster.report = status_of_groups(departures=0)
    assert "This group has no dead letters." in browser.get("/groups/departures").seen.words


def test_a_letter_shows_the_life_of_its_message_and_letters_of_its_cause(
    browser: Browser, cluster: FakeCluster
) -> None:
    fill(cluster)
    assert cluster.store is not None
    sent = DeadLetterState("RESENT", NOW - 1, "<b>anna</b>", job="resend-1")
    cluster.store.add((), {indexed(1, NOW - 89 * MINUTE_MS, "x").key: sent}, {})
    page = browser.get(LETTERS + "/0/1")
    assert 'hx-trigger="load"' in page.text
    assert "/jobs/resend-1" in page.seen.links
    assert any("label=departures" in link and "state=OPEN" in link for link in page.seen.links)
    life = browser.get(LETTERS + "/0/1/life")
    for text in (
        "waited on reconsume.DELAY.10s/0/4 (send-backs: 1)",
        "delivered to reconsume.RETRY.departures/0/2",
        "became a dead letter 0/1",
        "resent: <b>anna</b>",
        "Found in 99 records",
        "There are more records than were read",
    ):
        assert text in life.seen.words, text
    assert "b" not in life.seen.tags


def test_what_waits_beside_the_ladder_is_shown_too(
    browser: Browser, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = GroupWaits({"reconsume.DELAY.10s": 2, "reconsume.DELAY.7d": 1_234}, 2_000, is_whole=True)
    monkeypatch.setattr(cluster, "waits", lambda _group: waits)
    words = browser.get("/groups/departures/waits").seen.words
    assert "Waiting on a topic that the table does not show: 1,234 reconsume.DELAY.7d" in words
    assert words.count("does not show") == 1


def test_a_group_shows_its_hours_and_what_of_it_waits(browser: Browser, cluster: FakeCluster) -> None:
    fill(cluster)
    page = browser.get("/groups/departures")
    assert "72 hours. Dead letters: 52, at most 52 in an hour" in page.seen.words
    assert page.text.count('<svg class="chart"') == 1
    assert browser.get("/").seen.tags.count("svg") == 1
    waits = browser.get("/groups/departures/waits").seen.words
    assert "Counted from 7 waiting records of all groups. More records wait than were read" in waits
    assert "1 3 10s 10s 2 7 reconsume.DELAY.10s" in waits
