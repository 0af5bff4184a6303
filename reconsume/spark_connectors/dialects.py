"""Dead letters of other systems, read into the same schema.

A family is known by a header that only it writes. Where a record carries several, as one that went through two
systems does, the family whose mark stands last counts: it wrote last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.names import DLQ_PREFIX
from reconsume.delay_levels.wire.properties import REAL_TOPIC, RECONSUME_TIME
from reconsume.spark_connectors.headers import HeaderColumns, moment

__all__ = ["FAMILIES", "dialect_of", "foreign_columns"]

_Read = Callable[[HeaderColumns], Column]
_LEGACY_BYTE: Final = 1
_SHARE_GROUP: Final = "kafka-share-group"


def _text(name: str) -> _Read:
    return lambda headers: headers.text(name)


def _number(name: str) -> _Read:
    return lambda headers: headers.integer(name)


def _binary(name: str, *sizes: int) -> _Read:
    """A big-endian whole number of one of these sizes; none of those that are read may be negative."""

    def read(headers: HeaderColumns) -> Column:
        raw = headers.raw(name)
        number = F.conv(F.hex(raw), 16, 10).try_cast("bigint")
        return F.when(F.octet_length(raw).isin(*sizes), number)

    return read


def _null(_headers: HeaderColumns) -> Column:
    return F.lit(None)


def _first(*reads: _Read) -> _Read:
    return lambda headers: F.coalesce(*(read(headers) for read in reads))


def _connect_group(headers: HeaderColumns) -> Column:
    """A sink connector's consumer group, unless its `consumer.override.group.id` says otherwise."""
    return F.concat(F.lit("connect-"), headers.text("__connect.errors.connector.name"))


def _pulsar_topic(headers: HeaderColumns) -> Column:
    """`flights` of `persistent://public/default/flights-partition-3`."""
    last = F.element_at(F.split(headers.text("REAL_TOPIC"), "/"), -1)
    return F.regexp_replace(last, r"-partition-[0-9]{1,9}\z", "")


def _pulsar_partition(headers: HeaderColumns) -> Column:
    found = F.regexp_extract(headers.text("REAL_TOPIC"), r"-partition-([0-9]{1,9})\z", 1)
    return found.try_cast("bigint")


@dataclass(frozen=True, slots=True)
class Family:
    """How one system tells of a dead letter.

    Attributes:
        mark: a header that it always writes, and no other family.
        message_id: an id that is no `<topic>/<partition>/<offset>`; by default the three are put together.
        attempts: deliveries, or retries, as it counts them.
        born: in milliseconds.
    """

    name: str
    mark: str
    topic: _Read
    partition: _Read
    offset: _Read
    group: _Read = _null
    message_id: _Read = _null
    attempts: _Read = _null
    born: _Read = _null
    cause: _Read = _null
    exception_class: _Read = _null
    stacktrace: _Read = _null


def _spring(name: str, original: str, exception: str) -> Family:
    """Spring's numbers are binary; its attempts are an int, of old a single byte."""
    return Family(
        name,
        mark=original + "topic",
        topic=_text(original + "topic"),
        partition=_binary(original + "partition", 4),
        offset=_binary(original + "offset", 8),
        group=_text("kafka_dlt-original-consumer-group"),
        attempts=_binary("retry_topic-attempts", 4, _LEGACY_BYTE),
        born=_first(_binary("retry_topic-original-timestamp", *range(1, 9)), _binary(original + "timestamp", 8)),
        cause=_text(exception + "message"),
        exception_class=_first(_text(exception + "cause-fqcn"), _text(exception + "fqcn")),
        stacktrace=_text(exception + "stacktrace"),
    )


def _smallrye(name: str, prefix: str) -> Family:
    """Where it failed has the prefix of its queue; how often and since when has that of the delayed one in both."""
    return Family(
        name,
        mark=prefix + "topic",
        topic=_text(prefix + "topic"),
        partition=_number(prefix + "partition"),
        offset=_number(prefix + "offset"),
        attempts=_number("delayed-retry-count"),
        born=_number("delayed-original-timestamp"),
        cause=_text(prefix + "reason"),
        exception_class=_text(prefix + "exception-class-name"),
        stacktrace=_text(prefix + "cause"),
    )


FAMILIES: Final = (
    _spring("spring-dlt", "kafka_dlt-original-", "kafka_dlt-exception-"),
    _spring("spring-retry-topic", "kafka_original-", "kafka_exception-"),
    Family(
        "kafka-connect",
        mark="__connect.errors.topic",
        topic=_text("__connect.errors.topic"),
        partition=_number("__connect.errors.partition"),
        offset=_number("__connect.errors.offset"),
        group=_connect_group,
        cause=_text("__connect.errors.exception.message"),
        exception_class=_text("__connect.errors.exception.class.name"),
        stacktrace=_text("__connect.errors.exception.stacktrace"),
    ),
    _smallrye("smallrye", "dead-letter-"),
    _smallrye("smallrye-delayed", "delayed-"),
    Family(
        "pulsar",
        mark="REAL_SUBSCRIPTION",
        topic=_pulsar_topic,
        partition=_pulsar_partition,
        offset=_null,
        group=_text("REAL_SUBSCRIPTION"),
        message_id=_first(_text("ORIGIN_MESSAGE_ID"), _text("ORIGIN_MESSAGE_IDY_TIME")),
        attempts=_number("RECONSUMETIMES"),
    ),
    Family(
        _SHARE_GROUP,
        mark="__dlq.errors.topic",
        topic=_text("__dlq.errors.topic"),
        partition=_number("__dlq.errors.partition"),
        offset=_number("__dlq.errors.offset"),
        group=_text("__dlq.errors.group"),
        attempts=_number("__dlq.errors.delivery.count"),
        cause=_text("__dlq.errors.message"),
        exception_class=_text("__dlq.errors.exception.class"),
        stacktrace=_text("__dlq.errors.stacktrace"),
    ),
)
"""Header names as the systems' own sources have them."""


def dialect_of(headers: HeaderColumns) -> Column:
    """The name of the family that wrote last, null where none is known.

    Where our own dead letter is the last to have written, it is ours; it carries the mark of share groups too.
    """
    ours = F.coalesce(headers.text(REAL_TOPIC).startswith(DLQ_PREFIX), F.lit(False))
    places = {family.name: headers.place_from_end(family.mark) for family in FAMILIES}
    places[_SHARE_GROUP] = F.when(~(ours & headers.has(RECONSUME_TIME)), places[_SHARE_GROUP])
    places[""] = F.when(ours, headers.place_from_end(RECONSUME_TIME))
    marked = [F.when(place.isNotNull(), F.struct(place, F.lit(name).alias("name"))) for name, place in places.items()]
    return F.nullif(F.least(*marked)["name"], F.lit(""))


def foreign_columns(headers: HeaderColumns, dialect: Column) -> dict[str, Column]:
    """What the family of this name tells, under the schema's names; all null where it is null."""

    def told(read: Callable[[Family], Column], of_type: str = "string") -> Column:
        return F.coalesce(*(F.when(dialect == family.name, read(family).try_cast(of_type)) for family in FAMILIES))

    topic = told(lambda family: family.topic(headers))
    partition = told(lambda family: family.partition(headers), "int")
    offset = told(lambda family: family.offset(headers), "bigint")
    position = F.concat(topic, F.lit("/"), partition.cast("string"), F.lit("/"), offset.cast("string"))
    attempts = told(lambda family: family.attempts(headers), "int")
    return {
        "dialect": dialect,
        "group": told(lambda family: family.group(headers)),
        "origin_message_id": F.coalesce(told(lambda family: family.message_id(headers)), position),
        "origin_topic": topic,
        "origin_partition": partition,
        "origin_offset": offset,
        "born": moment(told(lambda family: family.born(headers), "bigint")),
        "attempt": attempts,
        "deliveries": F.when(dialect == _SHARE_GROUP, attempts),
        "cause": told(lambda family: family.cause(headers)),
        "exception_class": told(lambda family: family.exception_class(headers)),
        "stacktrace": told(lambda family: family.stacktrace(headers)),
    }
