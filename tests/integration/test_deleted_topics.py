"""A topic is deleted under the schedulers: it is made again, what is due later arrives, other groups notice nothing."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from tests.integration.installation import Installation, installation, settings_for
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

COUNT = 5


def wait_for(one: Installation, group: str, kind: str, *bodies: bytes) -> None:
    one.produce(one.settings.names.delay(1_000), *bodies, headers=[("REAL_TOPIC", f"%{kind}%{group}".encode())])


@pytest.mark.parametrize("count", [1, COUNT], ids=["a record alone", "several"])
@pytest.mark.parametrize("kind", ["RETRY", "DLQ"])
def test_a_target_that_was_deleted_is_made_again(bootstrap_servers: str, kind: str, count: int) -> None:
    settings = settings_for(bootstrap_servers)
    with installation(bootstrap_servers, prefix=settings.topic_prefix) as one:
        names, admin = settings.names, AdminClient(settings.client_settings())
        group, other = one.name("g"), one.name("other")
        topic = names.retry(group) if kind == "RETRY" else names.dead_letter(group)
        for name in (group, other):
            wait_for(one, name, kind, b"before")
        wait_until(lambda: [record.value for record in one.read(topic)] == [b"before"], 60, "the first one arrives")
        admin.delete_topics([topic])[topic].result()
        wait_until(lambda: topic not in one.admin.partitions([topic]), 30, "it is gone")
        bodies = [b"%d" % number for number in range(count)]
        for name in (group, other):
            wait_for(one, name, kind, *bodies)
        of_other = names.retry(other) if kind == "RETRY" else names.dead_letter(other)
        for where, expected in ((of_other, [b"before", *bodies]), (topic, bodies)):
            wait_until(lambda where=where, all_of=expected: len(one.read(where)) >= len(all_of), 60, where)  # type: ignore[misc]
            assert sorted(record.value or b"" for record in one.read(where)) == sorted(expected)
        assert one.read(names.quarantine) == []
        assert one.admin.settings([topic])[topic]["message.timestamp.type"] == "LogAppendTime"
