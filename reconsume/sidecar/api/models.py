"""Requests and answers of the API; names as in RocketMQ's request CONSUMER_SEND_MSG_BACK."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    StrictBool,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.sidecar.guarding.shares import MOST_RECORDS

_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_MAX_INT = 2**31 - 1
_MAX_SAFE = 2**53 - 1
"""The largest integer that every JSON client represents exactly."""
_TOPIC = r"^[A-Za-z0-9._-]{1,249}$"


def _decode(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("must be a text in base64")  # noqa: TRY004 - pydantic takes no TypeError
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"must be base64 with its padding, as `base64` writes it: {error}") from None


Base64 = Annotated[
    bytes,
    BeforeValidator(_decode),
    PlainSerializer(lambda value: binascii.b2a_base64(value, newline=False).decode(), return_type=str),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": _BASE64}),
]


def _whole(value: Any) -> Any:
    """Accept JSON's 5.0 as a whole number; refuse true, "5" and 5.5."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("must be a whole number")  # noqa: TRY004 - pydantic takes no TypeError
    return value


def _moment(value: Any) -> Any:
    if not isinstance(value, str) or _MOMENT.fullmatch(value) is None:
        raise ValueError("must be a moment with its zone, such as 2026-11-21T08:00:00Z")
    return value


# The bounds come first; otherwise they would be missing in the OpenAPI document.
_Whole = BeforeValidator(_whole)
Count = Annotated[int, Field(ge=0, le=_MAX_INT), _Whole]
LongCount = Annotated[int, Field(ge=0, le=_MAX_SAFE), _Whole]
Timestamp = Annotated[int, Field(ge=-_MAX_SAFE, le=_MAX_SAFE), _Whole]
Level = Annotated[int, Field(ge=-_MAX_INT, le=_MAX_INT), _Whole]
WaitLevel = Annotated[int, Field(ge=1, le=_MAX_INT), _Whole]
AckIndex = Annotated[int, Field(ge=-1, le=_MAX_INT), _Whole]
Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]


class _Asked(BaseModel):
    """A request body. Unknown fields are refused, because a misspelt field would be ignored silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=False)


class _Told(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class KafkaHeader(_Asked):
    """A header of a record; a name may occur several times."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^\x00]+$")]
    value: Base64 | None = None


def kafka_headers(headers: Sequence[KafkaHeader]) -> list[Header]:
    """Convert headers to the form of Kafka's clients."""
    return [(header.name, header.value) for header in headers]


class Failure(_Asked):
    """The failure: kept on a dead letter, the message cut to 1 KiB and the stack to 4 KiB."""

    type: Annotated[
        str | None, Field(description="class of the exception, such as java.lang.IllegalStateException")
    ] = None
    message: str | None = None
    stack: str | None = None


class RecordToSendBack(_Asked):
    """A record that failed, by reference: the sidecar reads it again."""

    topic: Annotated[str, Field(pattern=_TOPIC, description="where it was read: an ordinary topic or the retry topic")]
    partition: Count
    offset: LongCount
    delay_level: Annotated[Level, Field(description="0: the next level; negative: dead letter now")] = 0
    max_reconsume_times: Annotated[Count | None, Field(description="default: the group's")] = None
    reconsume_times: Annotated[
        Count | None, Field(description="as the caller read it; 409 if the record says otherwise")
    ] = None
    error: Failure | None = None
    origin_msg_id: Annotated[str | None, Field(description="taken and not used, as by RocketMQ's broker")] = None
    unit_mode: Annotated[StrictBool | None, Field(description="likewise")] = None

    @property
    def position(self) -> Position:
        """The place of the failed record."""
        return Position(self.topic, self.partition, self.offset)


class RecordByValue(RecordToSendBack):
    """A failed record by value: the copy has these contents. Its place identifies the attempt."""

    value: Annotated[Base64 | None, Field(description="null for a tombstone")]
    key: Base64 | None = None
    headers: Annotated[list[KafkaHeader], Field(description="all that it was read with, reconsume's own too")] = []
    timestamp: Annotated[Timestamp | None, Field(description="of the record, in milliseconds; default: now")] = None


_BY_VALUE = frozenset(RecordByValue.model_fields) - frozenset(RecordToSendBack.model_fields)


def _kind(value: Any) -> str:
    """Return "by value" if any part of a value is present: a key without a value is a mistake, not a reference."""
    if isinstance(value, Batch) or (isinstance(value, dict) and "records" in value):
        return "batch"
    by_value = isinstance(value, RecordByValue) or (isinstance(value, dict) and not _BY_VALUE.isdisjoint(value))
    return "value" if by_value else "reference"


OneRecord = Annotated[
    Annotated[RecordByValue, Tag("value")] | Annotated[RecordToSendBack, Tag("reference")], Discriminator(_kind)
]


class Batch(_Asked):
    """Several records of one call of a listener."""

    records: Annotated[list[OneRecord], Field(min_length=1, max_length=MOST_RECORDS)]
    ack_index: Annotated[
        AckIndex, Field(description="what comes after this index is sent back; -1: all (RocketMQ: CC-07)")
    ] = -1


SendBackBody = Annotated[
    Annotated[RecordByValue, Tag("value")]
    | Annotated[RecordToSendBack, Tag("reference")]
    | Annotated[Batch, Tag("batch")],
    Discriminator(_kind),
]


class Outcome(StrEnum):
    """The outcome for a record."""

    DELAYED = "DELAYED"
    """The message waits, and returns on the retry topic when it is due."""
    DEAD_LETTERED = "DEAD_LETTERED"
    """The message goes to the dead-letter topic at once."""
    ACCEPTED = "ACCEPTED"
    """The message is in the inbox, because its delay topic refused it; the scheduler applies the rule."""
    DROPPED = "DROPPED"
    """Nothing was written: the group's retryQueueNums is 0 or less (RocketMQ: BR-04)."""
    ACKNOWLEDGED = "ACKNOWLEDGED"
    """Nothing was written: the record is at or before ackIndex."""


class Answer(_Told):
    """The outcome for a record, once Kafka has acknowledged it."""

    outcome: Outcome
    topic: Annotated[str | None, Field(description="the Kafka topic that it will be on")] = None
    level: Annotated[int | None, Field(description="that it waits on")] = None
    due_at: Annotated[datetime | None, Field(description="when it leaves for that topic, by the brokers' clock")] = None
    reconsume_times: Annotated[int | None, Field(description="that its copy carries")] = None
    message_id: Annotated[
        str | None, Field(description="the same over all retries; a digest ends one of over 512 characters")
    ] = None


class Answers(_Told):
    """One answer for each record, in the order of the records."""

    records: list[Answer]


class GroupView(_Told):
    """A group, as its consumers need to know it."""

    group: str
    retry_topic: Annotated[str, Field(description="to subscribe to, beside the group's own topics")]
    retry_topic_exists: bool
    dead_letter_topic: str
    retry_max_times: int
    retry_queue_nums: Annotated[int, Field(description="partitions of the retry topic; 0 or less: no retries")]
    consume_enable: bool
    waits: Annotated[str, Field(description="before each retry, where no level is wished")]
    consumer_settings: Annotated[dict[str, str], Field(description="that a consumer needs for the retry topic")]


class NewMessage(_Asked):
    """A message for later or immediate delivery."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["delayLevel", "deliverAt"]}})

    topic: Annotated[str, Field(pattern=_TOPIC)]
    value: Annotated[Base64 | None, Field(description="null for a tombstone")]
    key: Base64 | None = None
    headers: list[KafkaHeader] = []
    tags: str | None = None
    keys: str | None = None
    delay_level: WaitLevel | None = None
    deliver_at: Annotated[Moment | None, Field(description="at most 40 days ahead; past: at once")] = None

    @model_validator(mode="after")
    def _one_delay(self) -> Self:
        if self.delay_level is not None and self.deliver_at is not None:
            raise ValueError("delayLevel and deliverAt are both given; keep one of them")
        return self


class SentMessage(_Told):
    """The stored message."""

    message_id: Annotated[str, Field(description="its UNIQ_KEY")]
    topic: Annotated[str, Field(description="where consumers get it")]


class ProblemView(_Told):
    """An error by RFC 9457."""

    type: Annotated[str, Field(description="urn:reconsume:problem:… names the kind")]
    title: str
    status: int
    detail: Annotated[str, Field(description="what, where, why, and the way out")]
    errors: Annotated[list[dict[str, Any]] | None, Field(description="fields that are wrong")] = None
    records: Annotated[
        list[dict[str, Any]] | None, Field(description="of several: an answer or a problem for each")
    ] = None
