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


class Told:
    """Calls of one key and subject, whose answers the test gives."""

    def __init__(self) -> None:
        self.once = one()
        self.begun: list[asyncio.Future[int]] = []

    async def call(self, born_ms: int | None, subject: str = "orders/0/0") -> asyncio.Task[int]:
        """Call, and return when the call waits or has its answer."""
        task = asyncio.ensure_future(self.once.run("group", "key", subject, self.begin, born_ms=born_ms))
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    def begin(self) -> asyncio.Future[int]:
        self.begun.append(never())
        return self.begun[-1]


def test_another_birth_at_the_same_place_is_another_call_whose_answer_is_remembered() -> None:
    async def run() -> None:
        told = Told()
        for number, born_ms in enumerate((1_000, 2_000)):
            call = await told.call(born_ms)
            assert len(told.begun) == number + 1
            told.begun[number].set_result(number)
            assert await call == number
        assert await asyncio.gather(*[await told.call(born_ms) for born_ms in (2_000, None)]) == [1, 1]
        assert len(told.begun) == 2

    asyncio.run(run())


def test_an_unknown_birth_is_no_other_one() -> None:
    async def run() -> None:
        for births in ((1_000, None), (None, 1_000)):
            told = Told()
            calls = [await told.call(born_ms) for born_ms in births]
            [begun] = told.begun
            begun.set_result(7)
            assert await asyncio.gather(*calls, *[await told.call(born_ms) for born_ms in births]) == [7] * 4

    asyncio.run(run())


@pytest.mark.parametrize("ends_first", [0, 1])
def test_a_waiting_call_of_another_birth_is_not_joined_and_its_end_changes_nothing(ends_first: int) -> None:
    async def run() -> None:
        told = Told()
        calls = [await told.call(1_000), await told.call(2_000)]
        assert (len(told.begun), told.once.running) == (2, 2)
        told.begun[ends_first].set_result(ends_first)
        assert await calls[ends_first] == ends_first
        assert told.once.running == 1
        again = await told.call(2_000)
        told.begun[1 - ends_first].set_result(1 - ends_first)
        assert await asyncio.gather(*calls, again, await told.call(2_000)) == [0, 1, 1, 1]
        assert (len(told.begun), told.once.running) == (2, 0)

    asyncio.run(run())


def test_a_key_of_another_record_is_refused_whatever_its_birth() -> None:
    async def run() -> None:
        told = Told()
        await told.call(1_000)
        with pytest.raises(Problem):
            await (await told.call(2_000, "orders/0/1"))
        assert len(told.begun) == 1

    asyncio.run(run())
