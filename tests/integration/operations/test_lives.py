"""The life of a message, and what waits of a group, read from a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconsume.operations.dead_letters import read_page
from reconsume.operations.lives import group_hours
from reconsume.operations.lives.group_hours import HOURS, count_retry_hours
from reconsume.operations.lives.group_waits import count_group_waits
from reconsume.operations.lives.message_life import read_life
from tests.integration.installation import LATER, Deliveries, Installation, installation
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def test_a_life_has_each_wait_each_delivery_and_each_death_in_order(here: Installation) -> None:
    group, topic = here.unique("g"), here.topic("flights")
    here.produce(topic, b"one", b"two")
    with here.consumer(group, topic, Deliveries(lambda *_: LATER), max_reconsume_times=2):
        wait_until(lambda: len(here.dead_letters(group)) == 2, "both are dead")
    [letter] = [one for one in read_page(here.cluster, group).records if one.value == b"one"]
    life = read_life(here.cluster, group, letter)
    assert life.is_whole
    assert [one.kind for one in life.steps] == [*("waited", "delivered") * 2, "waited", "died"]
    assert [one.attempt for one in life.steps] == [1, 1, 2, 2, 3, 3]
    assert [one.at_ms for one in life.steps] == sorted(one.at_ms for one in life.steps)
    assert {one.topic for one in life.steps if one.kind == "delivered"} == {here.settings.names.retry(group)}
    assert life.steps[-1].offset == letter.place.offset


def test_a_life_has_no_record_of_another_message_with_the_same_id(here: Installation) -> None:
    """Its topic was made again."""
    group = here.unique("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, 1, {"message.timestamp.type": "LogAppendTime"})
    for born_ms in (b"1700000000000", b"1700000000001"):
        named = [("ORIGIN_MESSAGE_ID", b"flights/0/0"), ("BORN_TIMESTAMP", born_ms)]
        here.produce(topic, b"v", headers=named)
    for letter in read_page(here.cluster, group).records:
        assert [one.offset for one in read_life(here.cluster, group, letter).steps] == [letter.place.offset]


def test_what_waits_is_counted_for_its_group_alone(here: Installation) -> None:
    names, group, other = here.settings.names, here.unique("g"), here.unique("g")
    lane = names.delay(3_600_000)
    here.admin.create(lane, 1, 1, {"message.timestamp.type": "LogAppendTime"})
    for number, whose in enumerate((group, other, group)):
        headers = {"REAL_TOPIC": f"%RETRY%{whose}", "RETRY_TOPIC": "flights", "RECONSUME_TIME": "1"}
        here.produce(lane, b"%d" % number, headers=[(name, text.encode()) for name, text in headers.items()])
    found = count_group_waits(here.cluster, group)
    assert (dict(found.by_topic), found.is_whole) == ({lane: 2}, True)
    assert found.read >= 3
    assert count_group_waits(here.cluster, here.unique("nobody")).by_topic == {}


def test_retries_are_counted_by_hour_and_estimated_where_they_are_many(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, hour_ms = here.unique("g"), 3_600_000
    topic = here.settings.names.retry(group)
    assert count_retry_hours(here.cluster, group).since_ms is None
    here.admin.create(topic, 2, 1, {"message.timestamp.type": "CreateTime"})
    now_ms = int(here.cluster.clock())
    oldest = now_ms - 100 * hour_ms
    producer = here.producer()
    for number, age in enumerate((100, 50, 50, 2, 0, 0)):
        producer.produce(topic, b"v", partition=number % 2, timestamp=now_ms - age * hour_ms)
    assert producer.flush(PATIENCE) == 0
    producer.close()
    for most, is_exact in ((20_000, True), (0, False)):
        monkeypatch.setattr(group_hours, "_READ_UP_TO", most)
        found = count_retry_hours(here.cluster, group)
        assert (found.is_exact, found.since_ms, len(found.by_hour)) == (is_exact, oldest, HOURS)
        assert sum(found.by_hour) == 5
        passed = int(here.cluster.clock()) // hour_ms - now_ms // hour_ms
        if is_exact:
            assert [found.by_hour[HOURS - 1 - age - passed] for age in (50, 2, 0)] == [2, 1, 2]
