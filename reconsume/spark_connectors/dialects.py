"""Dead letters of other systems, read into the same schema.

A header that only one family writes identifies it. If a record went through two systems and carries several such
headers, the last one counts: that family wrote last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.names import DLQ_PREFIX
from reconsume.delay_levels.wire.properties import REAL_TOPIC, RECONSUME_TIME
from reconsume.spark_connectors.headers import HeaderColumns, moment

_Read = str | Callable[[HeaderColumns], Column]
"""The name of a header with text or a decimal number; or a function of the headers."""
_Tells = Mapping[str, _Read | tuple[_Read, ...]]
_LEGACY_BYTE: Final = 1
_SHARE_GROUP: Final = "kafka-share-group"


def _binary(name: str, *sizes: int) -> _Read:
    """Read a big-endian whole number of one of these sizes; negative numbers are invalid."""

    def read(headers: HeaderColumns) -> Column:
        raw = headers.raw(name)
        number = F.conv(F.hex(raw), 16, 10).try_cast("bigint")
        return F.when(F.octet_length(raw).isin(*sizes), number)

    return read


def _connect_group(headers: HeaderColumns) -> Column:
    """Return a sink connector's default consumer group; `consumer.override.group.id` is invisible here."""
    return F.concat(F.lit("connect-"), headers.text("__connect.errors.connector.name"))


def _pulsar_topic(headers: HeaderColumns) -> Column:
    """Return `flights` for `persistent://public/default/flights-partition-3`."""
    last = F.element_at(F.split(headers.text("REAL_TOPIC"), "/"), -1)
    return F.regexp_replace(last, r"-partition-[0-9]{1,9}\z", "")


def _pulsar_partition(headers: HeaderColumns) -> Column:
    found = F.regexp_extract(headers.text("REAL_TOPIC"), r"-partition-([0-9]{1,9})\z", 1)
    return found.try_cast("bigint")


class Family(NamedTuple):
    """The headers of one system's dead letters.

    Attributes:
        mark: a header that this family always writes, and no other family.
        tells: the sources of each column; the first existing one counts. `message_id` is an id in another form than
            `<topic>/<partition>/<offset>`, `attempt` counts deliveries or retries as the system does, `born` is in
            milliseconds.
    """

    name: str
    mark: str
    tells: _Tells


def _spring(name: str, original: str, exception: str) -> Family:
    """Describe Spring Kafka: its numbers are binary; its attempts are an int, in old versions a single byte."""
    born = _binary("retry_topic-original-timestamp", *range(1, 9)), _binary(original + "timestamp", 8)
    tells: _Tells = {
        "origin_topic": original + "topic",
        "origin_partition": _binary(original + "partition", 4),
        "origin_offset": _binary(original + "offset", 8),
        "group": "kafka_dlt-original-consumer-group",
        "attempt": _binary("retry_topic-attempts", 4, _LEGACY_BYTE),
        "born": born,
        "cause": exception + "message",
        "exception_class": (exception + "cause-fqcn", exception + "fqcn"),
        "stacktrace": exception + "stacktrace",
    }
    return Family(name, original + "topic", tells)


def _smallrye(name: str, prefix: str) -> Family:
    """Describe SmallRye: `prefix` for the place of the failure, that of the delayed queue for count and first time."""
    tells = {
        "origin_topic": prefix + "topic",
        "origin_partition": prefix + "partition",
        "origin_offset": prefix + "offset",
        "attempt": "delayed-retry-count",
        "born": "delayed-original-timestamp",
        "cause": prefix + "reason",
        "exception_class": prefix + "exception-class-name",
        "stacktrace": prefix + "cause",
    }
    return Family(name, prefix + "topic", tells)


_CONNECT: Final[_Tells] = {
    "origin_topic": "__connect.errors.topic",
    "origin_partition": "__connect.errors.partition",
    "origin_offset": "__connect.errors.offset",
    "group": _connect_group,
    "cause": "__connect.errors.exception.message",
    "exception_class": "__connect.errors.exception.class.name",
    "stacktrace": "__connect.errors.exception.stacktrace",
}
_PULSAR: Final[_Tells] = {
    "origin_topic": _pulsar_topic,
    "origin_partition": _pulsar_partition,
    "group": "REAL_SUBSCRIPTION",
    "message_id": ("ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"),
    "attempt": "RECONSUMETIMES",
}
_SHARED: Final = {
    "origin_topic": "__dlq.errors.topic",
    "origin_partition": "__dlq.errors.partition",
    "origin_offset": "__dlq.errors.offset",
    "group": "__dlq.errors.group",
    "attempt": "__dlq.errors.delivery.count",
    "deliveries": "__dlq.errors.delivery.count",
    "cause": "__dlq.errors.message",
    "exception_class": "__dlq.errors.exception.class",
    "stacktrace": "__dlq.errors.stacktrace",
}
FAMILIES: Final = (
    _spring("spring-dlt", "kafka_dlt-original-", "kafka_dlt-exception-"),
    _spring("spring-retry-topic", "kafka_original-", "kafka_exception-"),
    Family("kafka-connect", "__connect.errors.topic", _CONNECT),
    _smallrye("smallrye", "dead-letter-"),
    _smallrye("smallrye-delayed", "delayed-"),
    Family("pulsar", "REAL_SUBSCRIPTION", _PULSAR),
    Family(_SHARE_GROUP, "__dlq.errors.topic", _SHARED),
)
"""Header names from the systems' own sources."""
_NUMBERS: Final = {
    "origin_partition": "int",
    "origin_offset": "bigint",
    "attempt": "int",
    "deliveries": "int",
    "born": "bigint",
}


def dialect_of(headers: HeaderColumns) -> Column:
    """Return the name of the family that wrote last; null if none is known.

    If reconsume wrote last, the dead letter is reconsume's, although it also carries the mark of share groups.
    """
    ours = F.coalesce(headers.text(REAL_TOPIC).startswith(DLQ_PREFIX), F.lit(False))
    places = {family.name: headers.place_from_end(family.mark) for family in FAMILIES}
    places[_SHARE_GROUP] = F.when(~(ours & headers.has(RECONSUME_TIME)), places[_SHARE_GROUP])
    places[""] = F.when(ours, headers.place_from_end(RECONSUME_TIME))
    marked = [F.when(place.isNotNull(), F.struct(place, F.lit(name).alias("name"))) for name, place in places.items()]
    return F.nullif(F.least(*marked)["name"], F.lit(""))


def foreign_columns(headers: HeaderColumns, dialect: Column) -> dict[str, Column]:
    """Return the columns of this family, under the schema's names; all null if the family is null."""

    def value(read: _Read, of_type: str) -> Column:
        if callable(read):
            return read(headers).try_cast(of_type)
        return headers.text(read) if of_type == "string" else headers.integer(read).try_cast(of_type)

    def told(name: str) -> Column:
        of_type = _NUMBERS.get(name, "string")
        columns = [F.lit(None).cast(of_type)]
        for family in FAMILIES:
            reads = family.tells.get(name, ())
            found = reads if isinstance(reads, tuple) else (reads,)
            columns += [F.when(dialect == family.name, value(read, of_type)) for read in found]
        return F.coalesce(*columns)

    names = ("group", "origin_topic", "origin_partition", "origin_offset", "attempt", "deliveries")
    columns = {name: told(name) for name in (*names, "cause", "exception_class", "stacktrace")}
    position = [columns[f"origin_{name}"].cast("string") for name in ("topic", "partition", "offset")]
    own = F.concat(position[0], F.lit("/"), position[1], F.lit("/"), position[2])
    identity = F.coalesce(told("message_id"), own)
    return columns | {"dialect": dialect, "origin_message_id": identity, "born": moment(told("born"))}
