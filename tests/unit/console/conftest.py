"""One console for a file of tests, over a cluster in memory that is afresh for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.consoles import Browser
from tests.unit.console.fake_cluster import FakeCluster, letter, running_over


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[FakeCluster, Browser]]:
    cluster = FakeCluster()
    with running_over(cluster) as browser:
        yield cluster, browser


@pytest.fixture
def cluster(shared: tuple[FakeCluster, Browser]) -> FakeCluster:
    cluster = shared[0]
    vars(cluster).update(vars(FakeCluster(letters={"departures": [letter(1), letter(2, "Timeout after 17 s")]})))
    return cluster


@pytest.fixture
def browser(shared: tuple[FakeCluster, Browser], cluster: FakeCluster) -> Browser:
    assert cluster is shared[0]
    return shared[1]
