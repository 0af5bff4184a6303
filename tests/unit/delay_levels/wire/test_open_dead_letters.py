"""A dead letter is open until it is sent again, deleted, or too old to be judged."""

from __future__ import annotations

from reconsume.delay_levels.wire.resend import OpenDeadLetters, Replayed


def letters(most: int = 100) -> OpenDeadLetters:
    found = OpenDeadLetters(most)
    found.died("departures", "a", (100, 0, 7))
    found.died("departures", "b", (200, 1, 3))
    return found


def test_the_oldest_of_each_group() -> None:
    found = letters()
    found.died("arrivals", "a", (150, 0, 0))
    assert found.oldest_ms() == {"departures": 100, "arrivals": 150}


def test_one_that_was_sent_again_is_not_open() -> None:
    found = letters()
    found.replayed(Replayed("a", "%RETRY%departures", 1), 300)
    assert found.oldest_ms() == {"departures": 200}
    found.replayed(Replayed("b", "%RETRY%departures", 1), 300)
    assert found.oldest_ms() == {}


def test_one_that_died_again_is_open_as_the_newer_dead_letter() -> None:
    found = letters()
    found.died("departures", "a", (400, 2, 0))
    found.replayed(Replayed("a", "%RETRY%departures", 1), 300)
    found.replayed(Replayed("b", "%RETRY%departures", 1), 300)
    assert found.oldest_ms() == {"departures": 400}


def test_a_message_of_another_group_stays_open_unless_all_groups_get_it() -> None:
    found = letters()
    found.replayed(Replayed("a", "%RETRY%arrivals", 1), 300)
    assert found.oldest_ms() == {"departures": 100}
    found.replayed(Replayed("a", "flights", 1), 300)
    assert found.oldest_ms() == {"departures": 200}


def test_what_was_deleted_or_is_too_old_is_left_out() -> None:
    found = letters()
    found.forget("departures", {0: 8, 1: 0}, 0)
    assert found.oldest_ms() == {"departures": 200}
    found.forget("departures", {0: 8, 1: 0}, 201)
    assert found.oldest_ms() == {}
    found = letters()
    found.keep_groups(frozenset())
    assert found.oldest_ms() == {}


def test_memory_is_bounded_and_room_is_used_again() -> None:
    found = letters(2)
    found.died("arrivals", "c", (50, 0, 0))
    assert found.oldest_ms() == {"departures": 100}
    found.replayed(Replayed("a", "%RETRY%departures", 1), 300)
    found.died("arrivals", "c", (50, 0, 0))
    assert found.oldest_ms() == {"departures": 200, "arrivals": 50}
