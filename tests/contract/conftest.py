"""Each contract test runs twice: in memory, and on a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.worlds import InMemoryWorld, RealWorld, World, in_memory
from tests.integration.installation import Installation, scheduler, settings_for


@pytest.fixture(scope="session")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    settings = settings_for(bootstrap_servers)
    pattern = f"{settings.topic_prefix[:-1]}-orders-.*"
    one = Installation(settings.model_copy(update={"allowed_real_topics": [pattern]}))
    one.make_topics()
    one.write_groups()
    with scheduler(one.settings):
        one.wait_until_published()
        yield one


@pytest.fixture(params=["in_memory", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "in_memory":
        with in_memory() as kafka:
            one: InMemoryWorld | RealWorld = InMemoryWorld(kafka)
            yield one
            one.close()
    else:
        one = RealWorld(request.getfixturevalue("here"))
        yield one
        one.close()
