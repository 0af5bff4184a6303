from __future__ import annotations

import asyncio
import threading
from math import ceil

import pytest

from reconsume.sidecar.guarding.shares import (
    BODY_TIMES,
    LARGEST_SHARE,
    MOST_RECORDS,
    Shares,
    Threads,
    call_bytes,
    record_bytes,
)
from reconsume.sidecar.problems import Problem

FOR_EVER = 60.0


def taken_until_refused(shares: Shares, owner: str, count: int = 1) -> int:
    number = 0
    while shares.take(owner, count):
        number += 1
    return number


@pytest.mark.parametrize("count", [1, 10])
def test_each_owner_leaves_a_part_of_what_is_left(count: int) -> None:
    shares = Shares(100 * count)
    held = [taken_until_refused(shares, owner, count) for owner in ("first", "second", "third")]
    assert held in ([75, 19, 5], [75, 18, 5])
    assert shares.take("healthy", count)


@pytest.mark.parametrize(("body", "records"), [(2**16, MOST_RECORDS), (2**24, MOST_RECORDS), (2**24, 1)])
def test_the_largest_body_leaves_memory_for_its_records(body: int, records: int) -> None:
    """Otherwise its call would be refused for ever, although nobody else calls."""
    shares = Shares(ceil(call_bytes(body) / LARGEST_SHARE))
    assert shares.take("group", BODY_TIMES * body)
    assert all(shares.take("group", record_bytes(body * 3 // 4 // records)) for _ in range(records))


def test_the_only_owner_may_take_all() -> None:
    assert taken_until_refused(Shares(100, has_one_owner=True), "only") == 100


def test_places_that_are_given_back_go_to_those_who_wait_in_their_order() -> None:
    async def run() -> list[str]:
        shares, got = Shares(4), list[str]()

        async def waiting(name: str, owner: str) -> None:
            await shares.wait(owner)
            got.append(name)

        assert taken_until_refused(shares, "slow") == 3
        tasks = [asyncio.ensure_future(waiting(name, name[:-1])) for name in ("slow1", "slow2", "other1", "slow3")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert got == ["other1"], "an owner that waits holds up no other"
        for _ in range(4):
            shares.give_back("slow")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return got

    assert asyncio.run(run()) == ["other1", "slow1", "slow2", "slow3"]


def test_the_largest_record_gets_its_memory_beside_the_body_of_its_own_call() -> None:
    async def run() -> tuple[int, int]:
        shares = Shares(1_000)
        assert shares.take("a", 10)
        async with asyncio.timeout(FOR_EVER):
            return await shares.wait("a", 5_000), shares.free

    granted, free = asyncio.run(run())
    assert granted + 10 + free == 1_000
    assert granted > 600


@pytest.mark.parametrize("granted_too", [False, True])
def test_who_gives_up_takes_nothing(granted_too: bool) -> None:
    async def run() -> int:
        shares = Shares(4, has_one_owner=True)
        assert taken_until_refused(shares, "a") == 4
        task = asyncio.ensure_future(shares.wait("b"))
        await asyncio.sleep(0)
        if granted_too:
            shares.give_back("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        shares.give_back("a", 3 if granted_too else 4)
        return shares.free

    assert asyncio.run(run()) == 4


def test_what_is_returned_passes_over_a_caller_that_is_just_giving_up() -> None:
    """As when the same timeout ends who holds and who waits."""

    async def play() -> tuple[int, int]:
        shares = Shares(8)
        held = await shares.wait("a", 8)
        gives_up, stays = (asyncio.create_task(shares.wait("a", 2)) for _ in range(2))
        await asyncio.sleep(0)
        gives_up.cancel()
        shares.give_back("a", held)
        async with asyncio.timeout(5):
            got = await stays
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        return got, shares.free

    assert asyncio.run(play()) == (2, 6)


def test_more_than_there_is_is_cut_to_what_can_be_had() -> None:
    assert asyncio.run(Shares(100).wait("large", 1_000)) == 68


def test_calls_of_one_owner_that_hang_leave_threads_for_another() -> None:
    """As messages to a topic without a leader do."""
    answered = threading.Event()

    async def run() -> tuple[str, str]:
        threads = Threads(16, FOR_EVER)
        hanging = [asyncio.ensure_future(threads.run("topic slow", answered.wait)) for _ in range(100)]
        other = await threads.run("group healthy", lambda: "done")
        answered.set()
        await asyncio.gather(*hanging)
        again = await threads.run("topic slow", lambda: "done too")
        threads.close()
        return other, again

    try:
        assert asyncio.run(asyncio.wait_for(run(), FOR_EVER)) == ("done", "done too")
    finally:
        answered.set()


def test_a_call_that_gets_no_thread_in_time_is_told_for_whom_all_wait() -> None:
    answered = threading.Event()

    async def run() -> Problem:
        threads = Threads(4, 0.01)
        hanging = [asyncio.ensure_future(threads.run("topic slow", answered.wait)) for _ in range(4)]
        results = await asyncio.wait(hanging, return_when=asyncio.FIRST_EXCEPTION)
        [refused] = [task.exception() for task in results[0]]
        answered.set()
        await asyncio.wait(hanging)
        threads.close()
        assert isinstance(refused, Problem)
        return refused

    try:
        refused = asyncio.run(asyncio.wait_for(run(), FOR_EVER))
    finally:
        answered.set()
    assert (refused.status, refused.kind, refused.headers) == (503, "too-many-waiting", {"retry-after": "5"})
    assert "3 calls for topic slow wait for Kafka" in refused.detail


def test_a_thread_is_not_free_before_its_call_returns_though_nobody_waits() -> None:
    answered = threading.Event()

    async def run() -> None:
        threads = Threads(2, 0.01)
        for _ in range(3):
            task = asyncio.ensure_future(threads.run("a", answered.wait))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(Problem):
            await threads.run("a", lambda: None)
        answered.set()
        threads.close()

    try:
        asyncio.run(asyncio.wait_for(run(), FOR_EVER))
    finally:
        answered.set()


def test_owners_of_nothing_take_no_memory() -> None:
    shares = Shares(100)
    for number in range(10):
        assert shares.take(f"group made-up-{number}", 0)
    assert shares.take("real", 3)
    assert dict(shares._of) == {"real": 3}
