"""The rights of the roles as text; that they are exactly those is shown on a real Kafka."""

from __future__ import annotations

import shlex

import pytest

from reconsume.delay_levels.wire.names import TopicNames
from reconsume.operations.rights import Right, Role, acl_commands, rights_of, unsayable

NAMES = TopicNames()


def test_a_command_is_what_kafkas_tool_takes() -> None:
    rights = [
        Right("topic", "reconsume.DELAY.", ("Read", "Write"), "why", prefixed=True),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "why"),
        Right("group", "with space", ("Read",), "why"),
    ]
    first, second, third = acl_commands(rights, "User:CN=a, O=b", "kafka:9092")
    assert first == (
        "kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal 'User:CN=a, O=b' --operation Read "
        "--operation Write --topic reconsume.DELAY. --resource-pattern-type prefixed"
    )
    assert second.endswith("--operation DescribeConfigs --cluster")
    assert shlex.split(third)[-2:] == ["--group", "with space"]


@pytest.mark.parametrize("role", Role)
def test_no_role_may_delete_or_change_settings_and_only_schedulers_write_dead_letters(role: Role) -> None:
    rights = rights_of(role, NAMES, group="departures", topics=["flights"], exactly_once=True)
    operations = {operation for right in rights for operation in right.operations}
    # `topics apply` adds partitions, for which Kafka asks Alter; settings would need AlterConfigs.
    changes = {"Alter"} if role == Role.ADMIN else set()
    # Delivered records of parked topics are deleted: no retention may do it.
    parked = {"Delete"} if role == Role.SCHEDULER else set()
    assert operations <= {"Read", "Write", "Create", "Describe", "DescribeConfigs"} | changes | parked
    deleting = [right.name for right in rights if "Delete" in right.operations]
    assert deleting == ["reconsume.PARKED."] * (role == Role.SCHEDULER)
    writes = [right for right in rights if right.resource == "topic" and "Write" in right.operations]
    reaches = [right for right in writes if NAMES.dead_letter("departures").startswith(right.name)]
    assert bool(reaches) == (role in (Role.SCHEDULER, Role.ADMIN))


def test_a_consumer_may_read_no_group_but_its_own() -> None:
    names = {right.name for right in rights_of(Role.CONSUMER, NAMES, group="a b", topics=["flights"])}
    assert NAMES.retry("a b") in names
    assert "a b" in names
    assert not any(name.startswith("reconsume.DLQ") for name in names)


@pytest.mark.parametrize("role", [Role.CONSUMER, Role.SIDECAR])
def test_a_member_of_a_group_with_a_limit_counts_its_parked_records(role: Role) -> None:
    usual = rights_of(role, NAMES, group="a b", topics=["flights"])
    limited = rights_of(role, NAMES, group="a b", topics=["flights"], max_waiting=True)
    assert [(right.resource, right.name, right.operations) for right in limited[len(usual) :]] == [
        ("topic", NAMES.parked("a b"), ("Describe",)),
        ("group", "reconsume.scheduler", ("Describe",)),
    ]


def test_who_looks_writes_nothing_and_who_resends_writes_to_one_lane_withdraws_and_pauses() -> None:
    looks, resends = rights_of(Role.CONSOLE, NAMES), rights_of(Role.RESENDER, NAMES)
    assert {operation for right in looks for operation in right.operations} == {"Read", "Describe"}
    assert resends[: len(looks)] == looks
    assert [(right.resource, right.name, right.operations, right.prefixed) for right in resends[len(looks) :]] == [
        ("topic", "reconsume.DELAY.0s", ("Write",), False),
        ("topic", "reconsume.DEAD_LETTERS", ("Write",), False),
        ("topic", "reconsume.CANCEL", ("Write",), False),
        ("transactional-id", "reconsume.deliver-now", ("Write",), False),
        ("topic", "reconsume.JOBS", ("Write",), False),
        ("transactional-id", "reconsume.dlq-resend.", ("Write",), True),
        ("topic", "reconsume.QUARANTINE", ("Write",), False),
        ("topic", "reconsume.SEND_BACK", ("Write",), False),
        ("transactional-id", "reconsume.quarantine-release", ("Write",), False),
        ("topic", "reconsume.GROUPS", ("Write",), False),
        ("transactional-id", "reconsume.groups", ("Write",), False),
        ("topic", "reconsume.PARKED.", ("Create",), True),
        ("cluster", "kafka-cluster", ("DescribeConfigs",), False),
    ]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("orders", ("orders", False)),
        (r"orders\..*", ("orders.", True)),
        (r"a\-b", ("a-b", False)),
        ("shop-orders_1", ("shop-orders_1", False)),
        ("shop-.*", ("shop-", True)),
        ("orders|flights", None),
        (r"orders\.(eu|us)", None),
        (r"o\d.*", None),
        ("a.b", None),
        (r"a\.*", None),
        (".*", None),
    ],
)
def test_a_pattern_becomes_an_acl_where_acls_can_say_it(pattern: str, said: tuple[str, bool] | None) -> None:
    rights = rights_of(Role.SCHEDULER, NAMES, allowed_real_topics=[pattern])
    found = [(right.name, right.prefixed) for right in rights if right.why == "delayed messages may be for it"]
    assert found == ([] if said is None else [said])
    assert unsayable([pattern]) == ([pattern] if said is None else [])
