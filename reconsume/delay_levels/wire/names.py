"""RocketMQ's topic names and their Kafka topics; only this module knows the encoding.

Kafka allows letters, digits, `.`, `_` and `-`, at most 249 characters. Two topics collide if they differ only in
`.` versus `_`. RocketMQ's `%RETRY%<group>` is illegal there, and a Kafka consumer group may be any text. So groups
are encoded byte by byte: legal characters stay, everything else becomes `.XX`.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from reconsume.delay_levels.errors import IllegalDelayLevels, IllegalName
from reconsume.delay_levels.foreign_values import of_type, shown
from reconsume.delay_levels.rules.durations import format_duration, parse_duration

RETRY_PREFIX: Final = "%RETRY%"
"""RocketMQ: NM-01, NM-02."""
DLQ_PREFIX: Final = "%DLQ%"
"""RocketMQ: NM-01, NM-02."""
MAX_TOPIC_LENGTH: Final = 249
"""Kafka's own limit."""
DOCTOR_GROUP: Final = "reconsume-doctor"
"""The doctor's test records go to this group's retry topic, which no consumer reads."""
SYSTEM_KEY: Final = "%SYS%"
"""The key of the cluster-wide settings in the GROUPS topic; not a legal group name."""
ALLOWED_TOPICS_KEY: Final = "%SYS%.allowedRealTopics"
"""The key of the schedulers' published setting; separate from `%SYS%`, which people change while workers start."""

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_TO_ESCAPE = re.compile(rb"[^A-Za-z0-9_-]|_(?=[0-9A-F]{2})")
_ESCAPE = re.compile(rb"\.([0-9A-F]{2})")


def prefix_and_group(name: str) -> tuple[str, str]:
    """Return `%RETRY%` or `%DLQ%` and the group, if a RocketMQ name begins so; else two empty texts."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", ""


def encode_name(name: str) -> str:
    """Encode `name` for a Kafka topic: every byte but letters, digits, `-` and `_` becomes `.XX`.

    A `_` before two upper-case hexadecimal digits becomes `.5F`, because `_5F` and `.5F` collide in Kafka. So no two
    names ever collide.
    """
    return _TO_ESCAPE.sub(lambda match: b".%02X" % match[0][0], name.encode()).decode()


def decode_name(encoded: str) -> str:
    """Decode a name that `encode_name` wrote.

    Raises:
        IllegalName: `encode_name` writes this text for no name.
    """
    if not encoded.isascii():
        raise IllegalName(f"{encoded!r} is not an encoded name; it holds more than ASCII")
    try:
        name = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), encoded.encode()).decode()
    except UnicodeDecodeError as error:
        raise IllegalName(f"{encoded!r} holds escapes that are not UTF-8: {error}") from None
    if encode_name(name) != encoded:
        raise IllegalName(f"{encoded!r} is not an encoded name; {name!r} is written {encode_name(name)!r}")
    return name


def check_group(group: str) -> str:
    """Return `group`, if it is a legal consumer group.

    Any group of Kafka is legal, except names with a second meaning (RocketMQ: NM-05; its smaller alphabet, NM-03,
    does not apply).

    Raises:
        IllegalName: blank, `DEFAULT_CONSUMER`, a key of the cluster-wide settings, or not encodable as UTF-8.
    """
    if not of_type(group, "group", str).strip():
        raise IllegalName("the consumer group is blank; give it a name")
    if group in ("DEFAULT_CONSUMER", SYSTEM_KEY, ALLOWED_TOPICS_KEY):
        raise IllegalName(f"the consumer group name {group!r} is reserved; choose another name")
    try:
        group.encode()
    except UnicodeEncodeError:
        raise IllegalName(f"the consumer group {group!r} cannot be encoded as UTF-8; choose another name") from None
    return group


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The Kafka topics of one installation, all under `prefix`.

    Raises:
        IllegalName: from the constructor, when the prefix itself is illegal; from the methods, when a name would
            be illegal or over 249 characters.
    """

    prefix: str = "reconsume."

    def __post_init__(self) -> None:
        if not _LEGAL_TOPIC.fullmatch(of_type(self.prefix, "topic_prefix", str)):
            raise IllegalName(
                f"topic_prefix {self.prefix!r} is illegal in Kafka; use letters, digits, '.', '_' and '-', "
                "such as 'reconsume.'"
            )

    @property
    def send_back(self) -> str:
        """The inbox for clients that leave the send-back rule to the scheduler."""
        return self._topic("SEND_BACK")

    @property
    def quarantine(self) -> str:
        """The topic of records that the scheduler cannot deliver."""
        return self._topic("QUARANTINE")

    @property
    def groups(self) -> str:
        """The compacted topic of subscription groups and the level table."""
        return self._topic("GROUPS")

    @property
    def cancel(self) -> str:
        """Requests to withdraw delayed messages; every scheduler worker follows it."""
        return self._topic("CANCEL")

    @property
    def positions(self) -> str:
        """The compacted topic of the scheduler workers' positions."""
        return self._topic("POSITIONS")

    @property
    def withdrawn(self) -> str:
        """The compacted topic of withdrawals that workers have read from `cancel`, for workers that start."""
        return self._topic("WITHDRAWN")

    @property
    def dead_letter_states(self) -> str:
        """The compacted topic of states of dead letters."""
        return self._topic("DEAD_LETTERS")

    @property
    def jobs(self) -> str:
        """The compacted topic of jobs on dead letters."""
        return self._topic("JOBS")

    def delay(self, delay_ms: int) -> str:
        """Return the delay topic of a duration: `reconsume.DELAY.10s`.

        A topic belongs to a duration, not a level: after a change of the table, old topics drain with the old delay.
        Test: tests/unit/delay_levels/wire/test_names.py.
        """
        return self._topic("DELAY." + format_duration(delay_ms))

    def retry(self, group: str) -> str:
        """The Kafka topic of `%RETRY%<group>`."""
        return self._topic("RETRY." + encode_name(check_group(group)), group)

    def dead_letter(self, group: str) -> str:
        """The Kafka topic of `%DLQ%<group>`; a group whose retry topic would be illegal has none."""
        self.retry(group)
        return self._topic("DLQ." + encode_name(group), group)

    def parked(self, group: str) -> str:
        """The topic where due records of a paused group wait."""
        return self._topic("PARKED." + encode_name(check_group(group)), group)

    def group_parked_in(self, topic: str) -> str:
        """Return the group of a parked topic.

        Raises:
            IllegalName: not the parked topic of a group.
        """
        return check_group(decode_name(topic.removeprefix(self.prefix + "PARKED.")))

    def is_ours(self, topic: str) -> bool:
        """Return whether a topic belongs to the installation."""
        singles = (self.send_back, self.quarantine, self.groups, self.cancel, self.withdrawn, self.positions)
        if topic in (*singles, self.dead_letter_states, self.jobs):
            return True
        return topic.startswith(tuple(self.prefix + kind for kind in ("DELAY.", "RETRY.", "DLQ.", "PARKED.")))

    def check_consumable(self, topic: str) -> None:
        """Refuse a Kafka topic that no application consumes.

        Raises:
            IllegalName: a topic of the installation other than a dead-letter topic.
        """
        if self.is_ours(topic) and not topic.startswith(self.prefix + "DLQ."):
            raise IllegalName(
                f"topic {topic!r} is one of reconsume's own; subscribe to a topic of yours, or to a dead-letter topic "
                f"({self.prefix}DLQ.<group>)"
            )

    def remedy_if_missing(self, topic: str) -> str:
        """Return the command that creates this Kafka topic, for messages about its absence."""
        if topic.startswith((self.prefix + "RETRY.", self.prefix + "DLQ.", self.prefix + "PARKED.")):
            return "a scheduler creates it with its first record"
        if self.is_ours(topic):
            return "run `reconsume topics apply`"
        return f"create it (`kafka-topics.sh --create --topic {shlex.quote(topic)}`) or ask its owner"

    def is_scheduled(self, topic: str) -> bool:
        """Return whether scheduler workers read this topic: a delay topic or the SEND_BACK inbox."""
        return topic == self.send_back or topic.startswith(self.prefix + "DELAY.")

    def is_parked(self, topic: str) -> bool:
        """Return whether this is the parked topic of a group, which scheduler workers read too."""
        return topic.startswith(self.prefix + "PARKED.")

    def level_of(self, topic: str) -> str:
        """Return the label of a scheduled topic in metrics; parked topics share one."""
        return "PARKED" if self.is_parked(topic) else topic.removeprefix(self.prefix)

    @property
    def scheduler_group(self) -> str:
        """The consumer group of the scheduler workers."""
        return self.prefix + "scheduler"

    @property
    def scheduled_pattern(self) -> str:
        """A regular expression for librdkafka that matches all topics of scheduler workers."""
        return "^" + re.escape(self.prefix) + r"(SEND_BACK|DELAY\..*|PARKED\..*)$"

    @property
    def delay_pattern(self) -> str:
        """A regular expression for librdkafka that matches the delay topics, without the inbox."""
        return "^" + re.escape(self.prefix) + r"DELAY\..*$"

    def delay_ms(self, topic: str) -> int:
        """Return the delay of a scheduled topic in milliseconds; 0 for SEND_BACK.

        Raises:
            IllegalName: not one of the topics that the scheduler reads.
        """
        if topic == self.send_back:
            return 0
        duration = topic.removeprefix(self.prefix + "DELAY.")
        try:
            delay_ms = parse_duration(duration)
        except IllegalDelayLevels:
            delay_ms = -1
        if delay_ms < 0 or topic != self.delay(delay_ms):
            raise IllegalName(
                f"topic {topic!r} is not a delay topic: {self.prefix}DELAY. must be followed by a duration "
                "in its shortest form, such as 10s or 2h; delete it, or rename it"
            )
        return delay_ms

    def kafka_topic(self, name: str) -> str:
        """Return the Kafka topic of a RocketMQ name; a name without `%RETRY%` or `%DLQ%` is already one.

        Raises:
            IllegalName: the result is no legal Kafka topic.
        """
        of_type(name, "topic", str)
        prefix, group = prefix_and_group(name)
        if prefix:
            return self.retry(group) if prefix == RETRY_PREFIX else self.dead_letter(group)
        if not _LEGAL_TOPIC.fullmatch(name) or name in (".", "..") or len(name) > MAX_TOPIC_LENGTH:
            raise IllegalName(
                f"topic {shown(name)} is illegal in Kafka; "
                f"use at most {MAX_TOPIC_LENGTH} letters, digits, '.', '_', '-'"
            )
        return name

    def rocketmq_name(self, topic: str) -> str:
        """Return the name that people see: `%RETRY%<group>` or `%DLQ%<group>`, any other topic as it is.

        A topic that only looks like one of a group, such as `reconsume.DLQ.my.group`, is another topic.
        """
        for kind, ours in (("RETRY.", RETRY_PREFIX), ("DLQ.", DLQ_PREFIX)):
            if topic.startswith(self.prefix + kind):
                with suppress(IllegalName):
                    name = ours + decode_name(topic.removeprefix(self.prefix + kind))
                    self.kafka_topic(name)
                    return name
        return topic

    def _topic(self, rest: str, group: str | None = None) -> str:
        topic = self.prefix + rest
        if len(topic) > MAX_TOPIC_LENGTH:
            what = f"group {shown(group)}" if group is not None else f"topic_prefix {self.prefix!r}"
            raise IllegalName(
                f"{what} gives the topic {topic[:40]}… with {len(topic)} characters; Kafka allows "
                f"{MAX_TOPIC_LENGTH}; shorten the name (each byte but letters, digits, '-' and '_' takes three)"
            )
        return topic
