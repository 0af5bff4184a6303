"""The exact rights of each role, in the terms of Kafka's ACLs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from reconsume.bridge.reading.recent_send_backs import RECENT_GROUP
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.names import TopicNames


class Role(Enum):
    """A role towards Kafka; each may have its own principal."""

    who: str

    def __new__(cls, value: str, who: str = "") -> Self:
        """Keep the description beside the name."""
        one = object.__new__(cls)
        one._value_, one.who = value, who
        return one

    SCHEDULER = "scheduler", "`reconsume scheduler`"
    CONSUMER = "consumer", "PushConsumer, Consumer and AIOConsumer"
    SIDECAR = "sidecar", "the sidecar: a consumer, and send-backs over HTTP"
    SENDER = "sender", "any client that writes to SEND_BACK"
    PRODUCER = "producer", "DelayProducer"
    CONSOLE = "console", "read-only tools: `reconsume status`, `reconsume dlq`, the console with `--read-only`"
    RESENDER = "resender", "tools that also resend, release, pause: `reconsume dlq`, `quarantine`, the console"
    SPARK = "spark", "`reconsume reconcile` and the readers"
    REPLAY = "replay", "`reconsume replay`, beside what Spark needs"
    ADMIN = "admin", "`reconsume topics apply`, `groups apply`, `doctor`"


_PLAIN: Final = re.compile(r"(?:[A-Za-z0-9_-]|\\[._-])+")
"""The name of a topic as a regular expression; a dot alone would be any character."""
_NAME_ONLY: Final = "nothing joins it; librdkafka asks under this name when the topic is read"


def role_named(name: str) -> Role:
    """Return the role with that name; IllegalSetting lists the roles."""
    try:
        return Role(name)
    except ValueError:
        known = "; ".join(f"{role.value}: {role.who}" for role in Role)
        raise IllegalSetting(f"--role {name!r} is unknown; use one of {known}") from None


@dataclass(frozen=True, slots=True)
class Right:
    """A right on one resource.

    Attributes:
        resource: `topic`, `group`, `transactional-id` or `cluster`.
        name: its name, or a prefix.
        operations: Kafka's names; Read and Write include Describe.
        why: the purpose.
    """

    resource: str
    name: str
    operations: tuple[str, ...]
    why: str
    prefixed: bool = False


def rights_of(
    role: Role,
    names: TopicNames,
    *,
    group: str = "",
    topics: Sequence[str] = (),
    exactly_once: bool = False,
    max_waiting: bool = False,
    allowed_real_topics: Sequence[str] = (),
) -> list[Right]:
    """Return the rights of a role.

    Args:
        role: the role.
        names: the installation's topics.
        group: the consumer group of a consumer or sidecar.
        topics: origin topics that it reads, targets of delayed messages, or targets of replays.
        exactly_once: whether it sends back in transactions.
        max_waiting: whether the number of waiting records of its group is limited.
        allowed_real_topics: the setting; the scheduler writes to these topics. A pattern that is neither a name nor a
            prefix with `.*` cannot be expressed by ACLs; it is left out, see `unsayable`.
    """
    if role is Role.SCHEDULER:
        return _scheduler(names, allowed_real_topics)
    if role in (Role.CONSUMER, Role.SIDECAR):
        found = _consumer(names, group, topics, exactly_once=exactly_once)
        found += _earlier_send_backs(names) if role is Role.SIDECAR else []
        return [*found, *_parked_records(names, group)] if max_waiting else found
    of_topics = {Role.PRODUCER: _producer, Role.SPARK: _spark, Role.REPLAY: _replay}
    if role in of_topics:
        return of_topics[role](names, topics)
    of_names = {Role.SENDER: _sender, Role.CONSOLE: _console, Role.RESENDER: _resender, Role.ADMIN: _admin}
    return of_names[role](names)


def unsayable(allowed_real_topics: Iterable[str]) -> list[str]:
    """Return the patterns that ACLs cannot express."""
    return [pattern for pattern in allowed_real_topics if _as_acl(pattern) is None]


def _as_acl(pattern: str) -> tuple[str, bool] | None:
    """Return a name, or a prefix and True; None for other regular expressions."""
    plain = pattern.removesuffix(".*")
    return (plain.replace("\\", ""), plain != pattern) if _PLAIN.fullmatch(plain) else None


def _scheduler(names: TopicNames, allowed: Sequence[str]) -> list[Right]:
    prefix = names.prefix
    return [
        Right("group", f"{prefix}scheduler", ("Read",), "to share the partitions with the other workers"),
        Right("transactional-id", f"{prefix}scheduler-", ("Write",), "one transaction for each batch", prefixed=True),
        Right(
            "topic",
            f"{prefix}DELAY.",
            ("Read", "Write", "DescribeConfigs"),
            "to deliver what is due, to put send-backs of the inbox on their level, to see that timestamps are right",
            prefixed=True,
        ),
        Right("topic", names.send_back, ("Read", "DescribeConfigs"), "the inbox"),
        Right(
            "topic",
            f"{prefix}PARKED.",
            ("Read", "Write", "Create", "Delete", "DescribeConfigs"),
            "where due records of paused groups wait; Delete is for those that were delivered",
            prefixed=True,
        ),
        Right("topic", f"{prefix}RETRY.", ("Write", "Create"), "to deliver retries", prefixed=True),
        Right("topic", f"{prefix}DLQ.", ("Write", "Create"), "to deliver dead letters", prefixed=True),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "the brokers' defaults, for the topics that it makes"),
        Right("topic", names.quarantine, ("Write",), "for what cannot be delivered"),
        Right("topic", names.groups, ("Read", "Write"), "level table and groups; to publish allowed_real_topics"),
        Right("topic", names.cancel, ("Read",), "withdrawn messages"),
        Right("topic", names.withdrawn, ("Read", "Write"), "what workers know of them, for those that start"),
        Right("topic", names.positions, ("Read", "Write"), "where each worker stands"),
        *(Right("group", topic, ("Describe",), _NAME_ONLY) for topic in (names.groups, names.cancel, names.positions)),
        *(
            Right("topic", name, ("Write",), "delayed messages may be for it", prefixed=prefixed)
            for name, prefixed in filter(None, map(_as_acl, allowed))
        ),
    ]


def _consumer(names: TopicNames, group: str, topics: Sequence[str], *, exactly_once: bool) -> list[Right]:
    found = [
        Right("group", group, ("Read",), "to join the group and to commit"),
        *(Right("topic", topic, ("Read",), "the messages") for topic in topics),
        Right("topic", names.retry(group), ("Read",), "the retries"),
        *_send_back(names),
    ]
    if exactly_once:
        why = "send-back and offset in one transaction"
        found.append(Right("transactional-id", f"reconsume-{group}-", ("Write",), why, prefixed=True))
    return found


def _earlier_send_backs(names: TopicNames) -> list[Right]:
    why = "what was sent back before the start, so that a repeated call gets its answer again"
    return [
        Right("topic", f"{names.prefix}DELAY.", ("Read",), why, prefixed=True),
        Right("topic", names.send_back, ("Read",), why),
        Right("group", RECENT_GROUP, ("Describe",), _NAME_ONLY),
    ]


def _parked_records(names: TopicNames, group: str) -> list[Right]:
    why = "parked records count towards the limit of --max-waiting"
    return [
        Right("topic", names.parked(group), ("Describe",), why),
        Right("group", names.scheduler_group, ("Describe",), why),
    ]


def _send_back(names: TopicNames) -> list[Right]:
    return [
        Right("topic", f"{names.prefix}DELAY.", ("Write",), "send-backs", prefixed=True),
        Right("topic", names.send_back, ("Write",), "send-backs, where the direct way is refused"),
        Right("topic", names.groups, ("Read",), "level table and groups"),
        Right("group", names.groups, ("Describe",), _NAME_ONLY),
    ]


def _sender(names: TopicNames) -> list[Right]:
    return [Right("topic", names.send_back, ("Write",), "the inbox")]


def _producer(names: TopicNames, topics: Sequence[str]) -> list[Right]:
    return [
        *_send_back(names),
        Right("topic", names.cancel, ("Write",), "to withdraw a delayed message"),
        *(Right("topic", topic, ("Describe",), "to see that the target is there") for topic in topics),
    ]


def _groups_changer(names: TopicNames) -> Right:
    return Right("transactional-id", f"{names.prefix}groups", ("Write",), "changes of groups, one after the other")


def _console(names: TopicNames) -> list[Right]:
    return [
        Right("topic", names.prefix, ("Read",), "what waits and what is dead", prefixed=True),
        Right("group", "*", ("Describe",), "how far each group and the scheduler are"),
    ]


def _resender(names: TopicNames) -> list[Right]:
    return [
        *_console(names),
        Right("topic", names.delay(0), ("Write",), "dead letters that are sent again, as the schedulers take them"),
        Right("topic", names.dead_letter_states, ("Write",), "what became of a dead letter"),
        Right("topic", names.cancel, ("Write",), "to withdraw delayed messages"),
        Right("transactional-id", f"{names.prefix}deliver-now", ("Write",), "`reconsume delay cancel`, `deliver-now`"),
        Right("topic", names.jobs, ("Write",), "jobs on many of them, and how far they are"),
        Right("transactional-id", f"{names.prefix}dlq-resend.", ("Write",), "each of them once", prefixed=True),
        Right("topic", names.quarantine, ("Write",), "which of its records were released or resolved"),
        Right("topic", names.send_back, ("Write",), "records of the quarantine that came from the inbox"),
        Right("transactional-id", f"{names.prefix}quarantine-release", ("Write",), "each of them once"),
        Right("topic", names.groups, ("Write",), "to pause the retries of a group, and to resume them"),
        _groups_changer(names),
        Right(
            "topic", f"{names.prefix}PARKED.", ("Create",), "where due records of a paused group wait", prefixed=True
        ),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "the brokers' defaults, for that topic"),
    ]


def _spark(names: TopicNames, topics: Sequence[str]) -> list[Right]:
    return [
        Right("topic", names.prefix, ("Read",), "all records", prefixed=True),
        Right("group", "*", ("Describe",), "how far the scheduler and the groups are"),
        *(Right("topic", topic, ("Read",), "for reconcile --origins and replay --to origin") for topic in topics),
    ]


def _replay(names: TopicNames, topics: Sequence[str]) -> list[Right]:
    """Return the rights of a replay: schedulers deliver the records, and the report checks their arrival."""
    return [
        *_spark(names, topics),
        Right("topic", names.delay(0), ("Write",), "replays, from where the scheduler takes them"),
        Right("topic", names.dead_letter_states, ("Write",), "what became of a dead letter"),
    ]


def _admin(names: TopicNames) -> list[Right]:
    return [
        Right(
            "topic",
            names.prefix,
            ("Alter", "Create", "DescribeConfigs", "Read", "Write"),
            "to make topics, add partitions, compare settings, read and write GROUPS, send one record through a level",
            prefixed=True,
        ),
        _groups_changer(names),
        Right("group", "*", ("Describe",), "to see the workers and how far they are"),
        Right("cluster", "kafka-cluster", ("DescribeConfigs",), "the brokers' defaults for new topics"),
    ]


def acl_commands(rights: Iterable[Right], principal: str, bootstrap_servers: str) -> list[str]:
    """Return commands for Kafka's own tool."""
    return [_command(right, principal, bootstrap_servers) for right in rights]


def _command(right: Right, principal: str, bootstrap_servers: str) -> str:
    resource = ["--cluster"] if right.resource == "cluster" else [f"--{right.resource}", right.name]
    pattern = ["--resource-pattern-type", "prefixed"] if right.prefixed else []
    operations = [word for operation in right.operations for word in ("--operation", operation)]
    words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers, "--add", "--allow-principal", principal]
    return shlex.join([*words, *operations, *resource, *pattern])
