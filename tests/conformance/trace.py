"""Reads what a real RocketMQ did; see README.md beside it for the fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["TRACE_FILE", "Call", "Kept", "Scenario", "Trace", "TracedMessage", "Try", "read_trace"]

TRACE_FILE: Final = Path(__file__).with_name("rocketmq-4.9.3.jsonl")


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """A message of RocketMQ, delivered or stored; `topic` is the RocketMQ name."""

    body: str
    topic: str
    queue_id: int
    reconsume_times: int
    delay_time_level: int
    properties: Mapping[str, str]


class Try(NamedTuple):
    """One delivery of one message."""

    topic: str
    body: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a listener; `returned` is the name of a status, or None."""

    messages: tuple[TracedMessage, ...]
    returned: str | None

    @property
    def attempt(self) -> int:
        """How often its messages were sent back; RocketMQ never mixed attempts in a batch here."""
        (attempt,) = {message.reconsume_times for message in self.messages}
        return attempt


@dataclass(frozen=True, slots=True)
class Kept:
    """What a retry or dead-letter topic held after the run; nothing where it does not exist."""

    exists: bool
    messages: tuple[TracedMessage, ...]


@dataclass(slots=True)
class Scenario:
    """One group's run.

    Attributes:
        calls: of its listener, in order.
        kept: by RocketMQ topic name.
    """

    name: str
    calls: list[Call] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"G_{self.name}"

    @property
    def retry_topic(self) -> str:
        return f"%RETRY%{self.group}"

    @property
    def dead_letter_topic(self) -> str:
        return f"%DLQ%{self.group}"

    @property
    def first_copies(self) -> list[TracedMessage]:
        """The messages as they were published."""
        return [message for call in self.calls for message in call.messages if message.reconsume_times == 0]

    @property
    def topics(self) -> list[str]:
        """The origin topics."""
        return sorted({message.topic for message in self.first_copies})

    @property
    def batch_size(self) -> int:
        """The largest batch that RocketMQ made."""
        return max(len(call.messages) for call in self.calls)

    @property
    def returned(self) -> dict[Try, str | None]:
        """What the listener returned on each attempt of each message.

        By message and not by call, because a batch that is split has more calls.
        """
        return {
            Try(message.topic, message.body, message.reconsume_times): call.returned
            for call in self.calls
            for message in call.messages
        }

    @property
    def last_attempt(self) -> int:
        """After it nothing was sent back."""
        return max(call.attempt for call in self.calls)


@dataclass(frozen=True, slots=True)
class Trace:
    """The whole file; `levels` is the level table of its broker."""

    levels: str
    scenarios: Mapping[str, Scenario]


def read_trace(file: Path = TRACE_FILE) -> Trace:
    """Read a recording.

    Raises:
        ValueError: a line of a kind that is not known, or calls of a scenario out of order.
    """
    first, *lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    scenarios: dict[str, Scenario] = {}
    for line in lines:
        scenario = scenarios.setdefault(line["scenario"], Scenario(line["scenario"]))
        if line["kind"] == "delivery":
            if line["call"] != len(scenario.calls) + 1:
                raise ValueError(f"{file}: {scenario.name}: call {line['call']} comes after {len(scenario.calls)}")
            returned = None if line["returned"] == "null" else line["returned"]
            scenario.calls.append(Call(_messages(line["messages"]), returned))
        elif line["kind"] == "topic":
            scenario.kept[line["topic"]] = Kept(line["exists"], _messages(line["stored"]))
        else:
            raise ValueError(f"{file}: unknown kind {line['kind']!r}")
    return Trace(first["levels"], scenarios)


def _messages(raw: list[dict[str, Any]]) -> tuple[TracedMessage, ...]:
    return tuple(
        TracedMessage(
            body=one["body"],
            topic=one["topic"],
            queue_id=one["queueId"],
            reconsume_times=one["reconsumeTimes"],
            delay_time_level=one["delayTimeLevel"],
            properties=one["properties"],
        )
        for one in raw
    )
