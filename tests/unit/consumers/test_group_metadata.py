"""Only the thread that polls asks the consumer; another one waits for its turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from reconsume.consumers.group_metadata import GroupMetadata
from tests.support.waiting import wait_until


class Consumer:
    """Remembers which threads came in."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.generation = 0

    def consumer_group_metadata(self) -> int:
        self.threads.append(threading.get_ident())
        self.generation += 1
        return self.generation


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def metadata(consumer: Consumer) -> GroupMetadata:
    return GroupMetadata(consumer.consumer_group_metadata)


def served(metadata: GroupMetadata, asked: Future[Any]) -> Callable[[], bool]:
    def turn() -> bool:
        metadata.serve()
        return asked.done()

    return turn


def test_another_thread_gets_what_the_thread_that_polls_asks_for(consumer: Consumer, metadata: GroupMetadata) -> None:
    metadata.serve()
    assert consumer.threads == [], "nobody has asked"
    with ThreadPoolExecutor(1) as other:
        for generation in (1, 2):
            asked = other.submit(metadata)
            wait_until(served(metadata, asked))
            assert asked.result() == generation
    assert set(consumer.threads) == {threading.get_ident()}


def test_the_thread_that_polls_does_not_wait_for_itself(metadata: GroupMetadata) -> None:
    metadata.serve()
    assert metadata() == 1


def test_after_the_close_there_is_none_and_nobody_waits(metadata: GroupMetadata) -> None:
    with ThreadPoolExecutor(2) as others:
        waits = others.submit(metadata)
        metadata.close()
        assert waits.result(60) is None
        assert others.submit(metadata).result(60) is None
