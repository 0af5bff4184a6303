"""How records that fall due one after the other share transactions."""

from __future__ import annotations

import pytest

from reconsume.bridge.scheduler.queues.pace import TransactionPace


def run(pace: TransactionPace, per_second: float, seconds: float) -> list[tuple[float, float]]:
    """Let single records fall due at a steady rate; return when each was due and when it was delivered."""
    delivered: list[tuple[float, float]] = []
    waiting: list[float] = []
    for due in (number * 1_000 / per_second for number in range(int(per_second * seconds))):
        while waiting and (at := waiting[0] + pace.wait_ms(waiting[0])) <= due:
            pace.began(at, len(waiting))
            delivered += [(one, at) for one in waiting]
            waiting = []
        waiting.append(due)
    return delivered


def transactions(delivered: list[tuple[float, float]]) -> int:
    return len({at for _, at in delivered})


def test_at_a_low_rate_no_record_waits() -> None:
    assert all(at == due for due, at in run(TransactionPace(50), per_second=10, seconds=20))


def test_at_a_hundred_a_second_records_share_transactions_and_wait_no_longer_than_was_said() -> None:
    delivered = run(TransactionPace(50), per_second=100, seconds=20)
    assert transactions(delivered) < len(delivered) / 3
    assert max(at - due for due, at in delivered) <= 50


@pytest.mark.parametrize("per_second", [500, 1_000, 10_000])
def test_at_a_high_rate_no_record_waits(per_second: float) -> None:
    late = [at - due for due, at in run(TransactionPace(50), per_second=per_second, seconds=5)]
    assert max(late[len(late) // 2 :]) == 0


def test_without_a_longest_wait_no_record_waits() -> None:
    assert all(at == due for due, at in run(TransactionPace(0), per_second=100, seconds=5))


def test_the_first_record_after_a_pause_does_not_wait() -> None:
    pace = TransactionPace(50)
    pace.began(1_000, 10)
    assert pace.wait_ms(1_010) == pytest.approx(38.75)
    assert pace.wait_ms(1_050) == 0


def test_a_clock_that_was_set_back_ends_the_wait() -> None:
    pace = TransactionPace(50)
    pace.began(1_000_000, 1)
    assert pace.wait_ms(1_000) == 0
    pace.began(1_000, 1)
    assert 0 < pace.wait_ms(1_001) <= 50
