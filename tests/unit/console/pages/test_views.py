"""What the pages show, made of what Kafka tells; and that no page waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.bridge.reading.counting import Count
from reconsume.console.pages.rows import row_of
from reconsume.console.pages.views import SHOWN_GROUPS, Overview, causes_of, group_view, ladder, overview_of, visible_to
from reconsume.console.sign_in.access import ConsoleCaller, ConsoleRole, Grant
from reconsume.console.snapshot import Snapshot, Snapshots
from reconsume.console.web.faults import status_of
from reconsume.console.web.rendering import bars, hour_ticks
from reconsume.delay_levels import errors
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import exponential_policy
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.operations.dead_letter_index.letters import OpenLetters
from reconsume.operations.resend import new_replay_id
from reconsume.operations.status import Status
from tests.support.waiting import PATIENCE, wait_until
from tests.unit.console.fake_cluster import NOW, letter, status_of_groups

NAMES = TopicNames()


def seen(report: Status, part_of_name: str = "") -> Overview:
    return overview_of(Snapshot(report, Groups()), part_of_name)


def test_groups_that_need_a_human_stand_first() -> None:
    report = status_of_groups(quiet=0, few=1, many=9, lagging=0)
    report.groups[3] = replace(report.groups[3], retry_lag=Count(50, exact=True))
    assert [one.group for one in seen(report).groups] == ["many", "few", "lagging", "quiet"]


def test_a_filter_narrows_the_table_and_not_the_totals() -> None:
    report = status_of_groups(departures=2, arrivals=3, Department=4)
    found = seen(report, "DEPART")
    assert [one.group for one in found.groups] == ["Department", "departures"]
    assert (found.found_groups, found.all_groups, found.dead_letters) == (2, 3, Count(9, exact=True))


def test_what_is_estimated_says_so_in_the_total_too() -> None:
    report = status_of_groups(departures=2, arrivals=600)
    assert seen(report).is_exact
    report.groups[1] = replace(report.groups[1], dead_letters=Count(600, exact=False))
    found = seen(report)
    assert [str(one.dead_letters) for one in found.groups] == ["~600", "2"]
    assert (str(found.dead_letters), found.is_exact) == ("~602", False)


def test_a_table_of_very_many_groups_is_cut_and_says_so() -> None:
    found = seen(status_of_groups(**{f"g{number}": 1 for number in range(SHOWN_GROUPS + 1)}))
    assert (len(found.groups), found.found_groups) == (SHOWN_GROUPS, SHOWN_GROUPS + 1)


def test_the_ladder_of_the_default_table() -> None:
    rungs = ladder(DelayLevels.parse(DEFAULT_LEVEL_TABLE), 16, NAMES)
    assert rungs[0] == (1, 3, 10_000, 10_000, "reconsume.DELAY.10s")
    assert (rungs[15].level, rungs[15].wait_ms, rungs[15].topic) == (18, 7_200_000, "reconsume.DELAY.2h")
    assert rungs[15].together_ms == sum(one.wait_ms for one in rungs)


def test_the_ladder_of_an_own_policy_ends_with_the_retries_and_is_never_long() -> None:
    policy = exponential_policy(1_000, 60_000, 2)
    assert [one.wait_ms for one in ladder(policy, 8, NAMES)] == [1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 60e3, 60e3]
    assert ladder(policy, 0, NAMES) == []
    assert len(ladder(policy, 10**9, NAMES)) == 40


def test_a_group_is_known_by_its_settings_or_by_its_topics() -> None:
    config = SubscriptionGroupConfig(group_name="own", retry_max_times=2)
    groups, report = Groups(by_name={"own": config}), status_of_groups(other=1)
    own = group_view("own", groups, report, NAMES)
    assert own is not None
    assert (own.is_registered, own.config, own.counts, len(own.rungs)) == (True, config, None, 2)
    other = group_view("other", groups, report, NAMES)
    assert other is not None
    assert other.config is not None
    assert (other.is_registered, other.config.retry_max_times, other.waiting["reconsume.DELAY.10s"]) == (
        False,
        16,
        (7, True),
    )
    assert group_view("unknown", groups, report, NAMES) is None
    strict = replace(groups, system=SystemConfig(auto_create_subscription_group=False))
    refused = group_view("other", strict, report, NAMES)
    assert refused is not None
    assert (refused.config, refused.rungs) == (None, [])


def test_the_same_cause_with_other_numbers_is_one() -> None:
    letters = [
        letter(5, "order 18: not found"),
        letter(4, "order 17: not found\nat line 3"),
        letter(3, "boom"),
        letter(2, "order 17: not found", exception_class="KeyError"),
        letter(1, None, exception_class=None),
    ]
    rows = causes_of(letters)
    assert [(row.exception_class, row.cause, row.number) for row in rows] == [
        ("builtins.ValueError", "order 18: not found", 2),
        ("builtins.ValueError", "boom", 1),
        ("KeyError", "order 17: not found", 1),
        ("", "", 1),
    ]
    assert rows[0].newest.place == (0, 5)
    assert [row.needle for row in rows] == [": not found", "boom", ": not found", ""]
    for row in rows[:3]:
        assert any(row.needle in (one.letter.cause or "") for one in letters)


def test_a_cause_of_numbers_alone_is_found_by_its_class() -> None:
    assert [row.needle for row in causes_of([letter(1, "404")])] == ["builtins.ValueError"]


def test_long_classes_and_causes_are_shortened_on_pages() -> None:
    for one in (
        letter(1, "404", exception_class="A" * 900_000),
        letter(1, "b" * 900_000, exception_class="A" * 900_000),
    ):
        [row] = causes_of([one])
        assert max(len(row.exception_class), len(row.cause), len(row.needle)) <= 160
        assert row.needle in f"{one.letter.exception_class} {one.letter.cause}"
        assert len(row_of(one, hide=False)["exception_class"]) <= 160


def test_an_old_reading_is_shown_where_the_next_one_fails_and_says_so() -> None:
    found = Snapshot(status_of_groups(departures=1), Groups())
    answers: Iterator[Snapshot | Exception] = iter([KafkaNotReachable("away"), found, KafkaNotReachable("again")])

    def read() -> Snapshot:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    snapshots = Snapshots(read)
    assert snapshots.latest() is None, "nothing was read yet"
    snapshots.look()
    for _ in range(2):
        with pytest.raises(KafkaNotReachable, match="away"):
            snapshots.latest()
    snapshots.look()
    assert snapshots.latest() == found
    snapshots.look()
    assert snapshots.latest() == replace(found, trouble="again")


def test_what_the_last_reading_did_not_have_is_read_at_once_but_not_again_and_again() -> None:
    now, read = [0.0], list[float]()

    def look() -> Snapshot:
        read.append(now[0])
        return Snapshot(status_of_groups(), Groups())

    snapshots = Snapshots(look, lambda: now[0])
    for now[0] in (0.0, 1.0, 2.0, 2.5, 3.0):
        snapshots.fresh()
    assert read == [0.0, 2.5]


def test_requests_that_wait_for_a_reading_share_the_next_one() -> None:
    now, read = [0.0], list[float]()
    waiting, may_end = threading.Semaphore(0), threading.Event()

    class Reading:
        lock = threading.Lock()

        def __enter__(self) -> None:
            waiting.release()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def look() -> Snapshot:
        read.append(now[0])
        assert may_end.wait(PATIENCE)
        now[0] += 10.0
        return Snapshot(status_of_groups(), Groups())

    snapshots = Snapshots(look, lambda: now[0])
    snapshots._reading = Reading()  # type: ignore[assignment]
    threads = [threading.Thread(target=snapshots.look), *(threading.Thread(target=snapshots.fresh) for _ in range(5))]
    for one in threads:
        one.start()
        assert waiting.acquire(timeout=60)
        wait_until(lambda: read, "the first reading has begun")
        now[0] = 3.0
    may_end.set()
    for one in threads:
        one.join(PATIENCE)
    assert read == [0.0, 13.0]


def test_an_installation_is_read_less_often_while_nobody_looks() -> None:
    now, waits, stop = [0.0], list[float](), threading.Event()

    def read() -> Snapshot:
        now[0] += 3.0
        return Snapshot(status_of_groups(), Groups())

    class Wake(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            now[0] += timeout or 0
            if len(waits) == 1:
                snapshots.latest()
            if len(waits) == 9:
                stop.set()
            return True

    snapshots = Snapshots(read, lambda: now[0])
    snapshots._wake = Wake()
    snapshots.run(stop)
    assert waits == [15.0, *[6.0] * 7, 15.0]


def test_what_a_person_may_not_see_is_left_out() -> None:
    store_of = {"departures": OpenLetters(2, 1, 2, NOW), "billing": OpenLetters(1, 0, 1, NOW)}
    hours = {group: [0] * 24 for group in store_of}
    snapshot = Snapshot(status_of_groups(departures=2, billing=1), Groups(), store_of, hours)
    anna = ConsoleCaller("anna", (Grant(ConsoleRole.VIEWER, ("dep*",)),))
    found = visible_to(anna, snapshot)
    assert ([one.group for one in found.status.groups], [*(found.open_letters or {})]) == (["departures"],) * 2
    assert [*(found.new_by_hour or {})] == ["departures"]


def test_the_record_that_is_due_for_longest_tells_how_late_schedulers_are() -> None:
    report = status_of_groups()
    assert seen(report).late_ms == 0, "it is due in 8 s"
    report.waiting.append(replace(report.waiting[0], next_due_ms=NOW - 5_000))
    assert seen(report).late_ms == 5_000


def test_bars_show_every_number_above_nothing() -> None:
    assert bars([0, 1, 1_000]) == "M4 20v-1h3v1zM8 20v-20h3v20z"
    assert bars([0, 0]) == ""


def test_a_chart_has_a_tick_at_each_noon_and_midnight() -> None:
    first = 1_795_377_600_000 // 86_400_000 * 86_400_000 + 3 * 3_600_000
    assert hour_ticks(first, 72) == [
        (12.5, "12:00"),
        (29.17, "11-23"),
        (45.83, "12:00"),
        (62.5, "11-24"),
        (79.17, "12:00"),
        (95.83, ""),
    ]


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "ReconsumeError"])
def test_every_error_of_ours_has_a_status(name: str) -> None:
    kind = getattr(errors, name)
    assert status_of(kind("x")) in (400, 403, 404, 503, 500)
    assert status_of(ReconsumeError("x")) == 500


def test_a_replay_id_tells_when_and_is_never_the_same() -> None:
    one, other = new_replay_id("console", NOW), new_replay_id("console", NOW)
    assert one.startswith("console-20261122T200000-")
    assert one != other
