"""Records that no topic of reconsume takes: the caller is told what, the limit and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconsume.bridge.process.settings import TopicSettings
from tests.integration.installation import Installation, settings_for
from tests.integration.sidecars import Answered, Running, b64, call, running_sidecar, sidecar_settings

pytestmark = pytest.mark.kafka

LIMIT = 65_536
LARGE = b"x" * 100_000


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Installation:
    """An installation whose topics take little, and no scheduler."""
    small = TopicSettings(delay_partitions=1, max_message_bytes=LIMIT)
    one = Installation(settings_for(bootstrap_servers).model_copy(update={"topics": small}))
    one.make_topics()
    one.write_groups()
    return one


@pytest.fixture(scope="module")
def sidecar(here: Installation) -> Iterator[Running]:
    with running_sidecar(sidecar_settings(here.settings)) as running:
        yield running


def check(answered: Answered, *said: str) -> None:
    assert (answered.status, answered.kind) == (413, "record-too-large"), answered
    assert "retry-after" not in answered.headers
    for one in (*said, "100,", f"{LIMIT:,} (max.message.bytes)"):
        assert one in answered.body["detail"]


@pytest.mark.parametrize("way", ["by reference", "by value"])
def test_a_copy_that_fits_nowhere(here: Installation, sidecar: Running, way: str) -> None:
    group, topic = here.unique("large"), here.unique("large-origin")
    here.admin.create(topic, 1, -1, {})
    here.produce(topic, LARGE, b"small", key=b"key")
    record = {"topic": topic, "partition": 0, "offset": 0}
    asked = record if way == "by reference" else record | {"key": b64(b"key"), "value": b64(LARGE)}
    for _ in range(2):  # what failed is not remembered as done
        check(sidecar.send_back(group, asked), f"{topic}/0/0", group, "raise max.message.bytes", "uncommitted")
    assert sidecar.send_back(group, record | {"offset": 1}).status == 200, "the others go on"
    of_both = sidecar.send_back(group, {"records": [record, record | {"offset": 1}]})
    assert (of_both.status, of_both.kind) == (413, "records-failed")
    assert of_both.body["records"][1]["outcome"] == "DELAYED"
    assert [one.value for one in here.waiting(1_000, group)] == [b"small"]
    assert here.read(here.settings.names.send_back) == []


@pytest.mark.parametrize("delay", ["none", "level", "moment"])
@pytest.mark.parametrize("key", [None, "one"])
def test_a_message_that_its_topic_does_not_take(
    here: Installation, sidecar: Running, delay: str, key: str | None
) -> None:
    topic = here.unique("small-topic")
    here.admin.create(topic, 1, -1, {"max.message.bytes": str(LIMIT)})
    moment = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    wishes: dict[str, dict[str, Any]] = {"none": {}, "level": {"delayLevel": 4}, "moment": {"deliverAt": moment}}
    body = {"topic": topic, "value": b64(LARGE)} | wishes[delay]
    named = {} if key is None else {"idempotency-key": f"{topic}-{key}"}
    check(call(sidecar.api, "POST", "/v1/messages", body, named), topic, "send a smaller one")
    assert here.read(topic) == []
