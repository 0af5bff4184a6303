"""Answers are remembered for a while, and at most so many; a call is carried out once."""

from __future__ import annotations

import asyncio

import pytest

from reconsume.bridge.reading.recent_send_backs import attempt_of
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from reconsume.sidecar.api.send_backs import _Failed
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats import Once, Remembered


def test_a_value_is_kept_until_its_time() -> None:
    remembered: Remembered[str] = Remembered(100, 10)
    remembered.put("a", "A", 1_000)
    assert (remembered.get("a", 1_099), remembered.get("a", 1_100), remembered.get("b", 1_000)) == ("A", None, None)


def test_of_too_many_the_oldest_goes_and_one_put_again_is_the_newest() -> None:
    remembered: Remembered[int] = Remembered(1_000, 2)
    for number, key in enumerate("abac"):
        remembered.put(key, number, number)
    assert [remembered.get(key, 5) for key in "abc"] == [2, None, 3]


def test_what_is_over_goes_when_something_comes() -> None:
    remembered: Remembered[int] = Remembered(10, 100)
    for key in range(50):
        remembered.put(key, key, 0)
    remembered.put("new", 1, 10)
    assert len(remembered) == 1


class Calls:
    """Calls that begin and are told their answer by the test."""

    def __init__(self) -> None:
        self.begun: list[asyncio.Future[str]] = []
        self.once: Once[str] = Once(1_000, 2, lambda: 0.0, has_one_owner=True)

    async def run(self, key: str, subject: str = "s") -> str:
        return await self.once.run("g", key, subject, self.begin)

    def begin(self) -> asyncio.Future[str]:
        self.begun.append(asyncio.get_running_loop().create_future())
        return self.begun[-1]


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_call_that_comes_again_waits_for_the_first_one_and_then_gets_its_answer() -> None:
    async def main() -> None:
        calls = Calls()
        waiting = [asyncio.create_task(calls.run("k")) for _ in range(3)]
        await _turns()
        assert (len(calls.begun), calls.once.running) == (1, 1)
        calls.begun[0].set_result("done")
        assert await asyncio.gather(*waiting) == ["done"] * 3
        assert (await calls.run("k"), len(calls.begun), calls.once.running) == ("done", 1, 0)

    asyncio.run(main())


def test_a_waiter_that_gives_up_ends_nothing() -> None:
    async def main() -> None:
        calls = Calls()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(calls.run("k"), 0.01)
        again = asyncio.create_task(calls.run("k"))
        await _turns()
        assert len(calls.begun) == 1
        calls.begun[0].set_result("late")
        assert await again == "late"

    asyncio.run(main())


def test_an_error_is_told_and_not_remembered() -> None:
    async def main() -> None:
        calls = Calls()
        first = asyncio.create_task(calls.run("k"))
        await _turns()
        calls.begun[0].set_exception(SendBackFailed("refused both ways"))
        with pytest.raises(SendBackFailed):
            await first
        asyncio.create_task(calls.run("k")).add_done_callback(lambda task: task.cancelled() or task.exception())
        await _turns()
        assert len(calls.begun) == 2

    asyncio.run(main())


def test_one_key_for_two_subjects_and_too_many_calls_are_refused() -> None:
    async def main() -> None:
        calls = Calls()
        tasks = [asyncio.create_task(calls.run(key)) for key in "ab"]
        await _turns()
        with pytest.raises(Problem) as reused:
            await calls.run("a", "another")
        with pytest.raises(Problem) as crowded:
            await calls.run("c")
        assert (reused.value.status, crowded.value.status, crowded.value.retry_after) == (409, 503, 5)
        for answer in calls.begun:
            answer.set_result("done")
        await asyncio.gather(*tasks)
        with pytest.raises(Problem):
            await calls.run("a", "another")

    asyncio.run(main())


def test_a_call_that_cannot_begin_leaves_nothing_behind() -> None:
    async def main() -> None:
        calls = Calls()

        def fails() -> asyncio.Future[str]:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await calls.once.run("g", "k", "s", fails)
        assert calls.once.running == 0

    asyncio.run(main())


@pytest.mark.parametrize("in_headers", [True, False])
def test_the_id_of_an_answer_is_bounded_and_the_same_over_all_retries(in_headers: bool) -> None:
    def told(unique: str) -> str:
        first = Stored.first_copy(Position("flights", 0, 7), 0)
        stored = first if in_headers else first._replace(origin_message_id=unique)
        headers = [("UNIQ_KEY", unique.encode())] if in_headers else []
        return _Failed(SendBackRequest("departures", headers, stored), None, None, None).message_id

    assert told("short") == "short"
    assert len(told("x" * 1_000_000)) == 512
    assert told("x" * 1_000_000) == told("x" * 1_000_000) != told("x" * 1_000_001)


def test_the_id_of_an_attempt_is_bounded() -> None:
    assert len(attempt_of("departures", "x" * 1_000_000, 1, []).origin_message_id) == 512
