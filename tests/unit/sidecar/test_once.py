from __future__ import annotations

import asyncio

import pytest

from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats import Once


def never() -> asyncio.Future[int]:
    """A call that Kafka does not answer."""
    return asyncio.get_running_loop().create_future()


def at_once() -> asyncio.Future[int]:
    return asyncio.ensure_future(asyncio.sleep(0, 1))


async def refused_after(once: Once[int], owner: str) -> int:
    """How many calls of an owner wait when the next one is refused."""
    for number in range(1_000):
        call = asyncio.ensure_future(once.run(owner, (owner, number), number, never))
        await asyncio.sleep(0)
        if call.done():
            assert isinstance(call.exception(), Problem)
            return number
    raise AssertionError(f"{owner} was never refused")


def one(*, has_one_owner: bool = False) -> Once[int]:
    return Once(60_000, 100, lambda: 0.0, has_one_owner=has_one_owner)


def test_a_group_without_answers_leaves_places_for_another() -> None:
    async def run() -> tuple[int, int]:
        once = one()
        held = await refused_after(once, "slow")
        return held, await once.run("healthy", "key", "subject", at_once)

    assert asyncio.run(run()) == (75, 1)


def test_each_further_group_without_answers_leaves_a_part_of_what_is_left() -> None:
    async def run() -> tuple[list[int], int]:
        once = one()
        held = [await refused_after(once, f"slow-{number}") for number in range(3)]
        return held, await once.run("healthy", "key", "subject", at_once)

    assert asyncio.run(run()) == ([75, 19, 5], 1)


def test_the_only_group_may_take_all_places() -> None:
    async def run() -> int:
        return await refused_after(one(has_one_owner=True), "only")

    assert asyncio.run(run()) == 100


def test_places_come_back_with_answers_and_with_errors() -> None:
    async def run() -> int:
        once = one()

        def broken() -> asyncio.Future[int]:
            raise RuntimeError

        for number in range(200):
            with pytest.raises(RuntimeError):
                await once.run("group", ("broken", number), number, broken)
            await once.run("group", ("good", number), number, at_once)
        return once.running

    assert asyncio.run(run()) == 0


def test_the_refusal_names_the_group_and_what_to_do() -> None:
    async def run() -> str:
        once = one()
        await refused_after(once, "slow")
        with pytest.raises(Problem) as refused:
            await once.run("slow", "key", "subject", never)
        return refused.value.detail

    told = asyncio.run(run())
    assert "75 calls for slow wait for Kafka" in told
    assert "make the call again later" in told
