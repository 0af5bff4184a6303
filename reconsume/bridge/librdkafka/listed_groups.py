"""The members of a group, from all brokers.

`AdminClient.list_groups` (librdkafka 2.16, `rd_kafka_list_groups`) asks all brokers, and each answer replaces the error
of the one before. So a group whose coordinator is loading it, or has lost its connection, seems not to exist. If the
coordinator lists the group and cannot describe it, the error is beside an empty list of members. Upstream issue: none
was found. `list_consumer_groups` keeps the error of each broker, but has no members. `describe_consumer_groups`, which
confluent-kafka recommends, asks the group's coordinator and kills the process if the connection breaks (librdkafka
issue 4605, pull request 5397).
Tests: tests/unit/bridge/librdkafka/test_listed_groups.py, tests/integration/scheduler/test_group.py.

Remove when: issue 4605 is closed.
"""

from __future__ import annotations

import re
from typing import Any, Final

from reconsume.bridge.process.polled_records import ClientError
from reconsume.delay_levels.errors import KafkaNotReachable

_GRACE_SECONDS: Final = 2.0
"""Extra time, because librdkafka's own timeouts may be a little late."""
_TRIES: Final = 2
"""The group may have been created, or loaded, between the two requests."""
_MEMBER_ID: Final = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def listed_members(client: Any, group: str, seconds: float, doing: str) -> set[str] | ClientError:
    """Return the members of a group by the part of their ids before the UUID; or the error of a broker.

    Args:
        client: the `AdminClient`, which must live until this returns.
        group: the group; without one on any broker the set is empty.
        seconds: the limit of each of up to four requests.
        doing: the beginning of error messages.

    Raises:
        KafkaNotReachable: no answer, or answers that contradict each other.
        KafkaException: a request failed.
    """
    for _ in range(_TRIES):
        for one in client.list_groups(group, timeout=seconds):
            if one.id == group:
                names = (_MEMBER_ID.fullmatch(member.id or "") for member in one.members)
                return one.error or {name[1] for name in names if name}
        try:
            listed = client.list_consumer_groups(request_timeout=seconds).result(seconds + _GRACE_SECONDS)
        except TimeoutError:
            raise KafkaNotReachable(f"{doing}: librdkafka has not answered") from None
        if not any(one.group_id == group for one in listed.valid):
            return listed.errors[0] if listed.errors else set()
    raise KafkaNotReachable(f"{doing}: the brokers do not agree whether it exists")
