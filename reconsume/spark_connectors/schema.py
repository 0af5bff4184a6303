"""The common schema of all readers, made from Kafka's raw columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from reconsume.delay_levels.wire import properties as p
from reconsume.spark_connectors.dialects import dialect_of, foreign_columns
from reconsume.spark_connectors.headers import HeaderColumns, moment, names_of, present_texts
from reconsume.spark_connectors.names import (
    decoded_name,
    delay_ms,
    duration_of,
    group_of_name,
    kind_of,
    place_of,
    rest_of,
    shown_name,
)

_TEXT, _INT, _LONG, _TIME, _BYTES = StringType(), IntegerType(), LongType(), TimestampType(), BinaryType()
_COLUMNS: Final[dict[str, DataType]] = {
    "kind": _TEXT,
    "topic": _TEXT,
    "kafka_topic": _TEXT,
    "partition": _INT,
    "offset": _LONG,
    "appended": _TIME,
    "group": _TEXT,
    "target": _TEXT,
    "origin_message_id": _TEXT,
    "origin_topic": _TEXT,
    "origin_partition": _INT,
    "origin_offset": _LONG,
    "born": _TIME,
    "attempt": _INT,
    "level": _INT,
    "delay_ms": _LONG,
    "due": _TIME,
    "deliver_at": _TIME,
    "cause": _TEXT,
    "exception_class": _TEXT,
    "stacktrace": _TEXT,
    "deliveries": _INT,
    "replay_id": _TEXT,
    "replay_times": _INT,
    "tags": _TEXT,
    "keys": _TEXT,
    "uniq_key": _TEXT,
    "dialect": _TEXT,
    "malformed": ArrayType(_TEXT),
    "key": _BYTES,
    "value": _BYTES,
    "headers": ArrayType(StructType([StructField("key", _TEXT), StructField("value", _BYTES)])),
}
SCHEMA: Final = StructType([StructField(name, of_type) for name, of_type in _COLUMNS.items()])
"""Columns may be added, never renamed or removed; docs/spark.md explains each."""

_POSITION: Final = r"\A[^/]+/[0-9]{1,10}/[0-9]{1,19}\z"
_NAMES: Final = "_names"
_KIND: Final = "_kind"
_NUMBER: Final = "_number"
_UNIT: Final = "_unit"
_GROUP_PART: Final = "_group"
_DIALECT: Final = "_dialect"
_TEXTS: Final = (p.RETRY_TOPIC, p.ORIGIN_MESSAGE_ID, p.REAL_TOPIC)


_COUNTS: Final = (p.RECONSUME_TIME, p.REPLAY_TIMES)
_INTEGERS: Final = (p.DELAY, p.REAL_QID)
_NOT_NEGATIVE: Final = (p.MAX_RECONSUME_TIMES, p.BORN_TIMESTAMP, p.TIMER_DELIVER_MS)
_NUMBERS: Final = (*_COUNTS, *_INTEGERS, *_NOT_NEGATIVE)
_TOLD: Final = (
    *_TEXTS,
    *_NUMBERS,
    *(p.DLQ_ERRORS + name for name in ("message", "exception.class", "stacktrace", "delivery.count")),
    *("QUARANTINE_REASON", p.REPLAY_ID, p.TAGS, p.KEYS, p.UNIQ_KEY),
)
"""Headers of reconsume that columns are made of."""


def typed(
    raw: DataFrame, topic_prefix: str, kind: str | None = None, *, foreign: bool = False, more: Sequence[str] = ()
) -> DataFrame:
    """Convert Kafka's columns, with headers, to `SCHEMA`.

    Args:
        raw: a frame of Spark's Kafka source, with `includeHeaders`.
        topic_prefix: the prefix of the installation's topics.
        kind: the kind of all its records; by default from their topics.
        foreign: whether dead letters of other systems may be among them, see `dialects`.
        more: columns of Kafka to keep unchanged, after those of the schema.
    """
    raw, headers = _taken_apart(raw, topic_prefix, kind)
    topic = F.col("topic")
    if foreign:
        raw = raw.withColumn(_DIALECT, dialect_of(headers))
    columns = {
        "kind": F.col(_KIND),
        "topic": shown_name(topic, topic_prefix),
        "kafka_topic": topic,
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "appended": F.col("timestamp"),
        **_of_loop(headers, topic, topic_prefix),
        "key": F.col("key"),
        "value": F.col("value"),
        "headers": F.coalesce(F.col("headers"), F.array().cast(_COLUMNS["headers"])),
    }
    if foreign:
        columns = _with_foreign(columns, headers)
    return raw.select(*(columns[name].cast(of_type).alias(name) for name, of_type in _COLUMNS.items()), *more)


def _taken_apart(raw: DataFrame, topic_prefix: str, kind: str | None) -> tuple[DataFrame, HeaderColumns]:
    """Return columns that several others need, and the headers that use them.

    They are one step of their own. In one step Spark computes equal parts once, such as the names of all headers and
    each place; as parts of later columns they would be computed again each time, and each further step would copy what
    it passes on.
    """
    topic, headers = F.col("topic"), HeaderColumns(F.col("headers"))
    number, unit = duration_of(topic, topic_prefix)
    group_part = F.coalesce(rest_of(topic, topic_prefix + "RETRY."), rest_of(topic, topic_prefix + "DLQ."))
    places = {name: f"_at_{name}".replace(".", "_") for name in _TOLD}
    numbers = {name: f"_number_{name}" for name in _NUMBERS}
    raws = {name: f"_raw_{name}".replace(".", "_") for name in _TOLD}
    raw = raw.withColumns(
        {
            _KIND: kind_of(topic, topic_prefix) if kind is None else F.lit(kind),
            _NAMES: names_of(F.col("headers")),
            _NUMBER: number,
            _UNIT: unit,
            # Spark pushes a filter below this step, and computes each needed column again for every use; it pushes none
            # below a nondeterministic column. (Spark 4 optimises `rand() >= 0` away.)
            _GROUP_PART: F.when(F.spark_partition_id() >= 0, group_part),
        }
        | {column: headers.place(name) for name, column in places.items()}
        | {column: headers.raw(name) for name, column in raws.items()}
        | {column: (headers.count if name in _COUNTS else headers.integer)(name) for name, column in numbers.items()}
    )
    found = ({name: F.col(column) for name, column in made.items()} for made in (places, numbers, raws))
    return raw, HeaderColumns(F.col("headers"), F.col(_NAMES), *found)


def _with_foreign(columns: dict[str, Column], headers: HeaderColumns) -> dict[str, Column]:
    """Add the columns of a foreign family, if there is one; of reconsume's headers only a replay's count applies."""
    told = foreign_columns(headers, F.col(_DIALECT))
    known = F.col(_DIALECT).isNotNull()
    nothing = dict.fromkeys(("target", "level", "delay_ms", "due", "deliver_at"), F.lit(None))
    nothing["malformed"] = present_texts(headers.spoiled(p.REPLAY_TIMES, headers.count(p.REPLAY_TIMES)))
    chosen = {
        name: F.when(known, value.cast(_COLUMNS[name])).otherwise(columns[name])
        for name, value in (nothing | told).items()
    }
    return columns | chosen


def _of_loop(headers: HeaderColumns, topic: Column, prefix: str) -> dict[str, Column]:
    """Return reconsume's own headers; on a record of an ordinary topic they are leftovers, not its history."""
    kind = F.col(_KIND)
    loop = kind != "message"
    target = F.when(loop, headers.text(p.REAL_TOPIC))
    delay = delay_ms(topic, prefix, (F.col(_NUMBER), F.col(_UNIT)))
    attempt = F.when(headers.has(p.RECONSUME_TIME), headers.count(p.RECONSUME_TIME)).otherwise(0)
    return {
        "group": F.when(loop, F.coalesce(decoded_name(F.col(_GROUP_PART)), group_of_name(target))),
        "target": target,
        **_origin(headers, loop),
        "attempt": F.when(loop, attempt).otherwise(0),
        "level": F.when(loop, headers.integer(p.DELAY).try_cast("int")),
        "delay_ms": delay,
        "due": moment(F.unix_millis(F.col("timestamp")) + delay),
        "deliver_at": F.when(loop, headers.moment(p.TIMER_DELIVER_MS)),
        "cause": F.when(kind == "quarantine", headers.text("QUARANTINE_REASON")).otherwise(
            headers.text(p.DLQ_ERRORS + "message")
        ),
        "exception_class": headers.text(p.DLQ_ERRORS + "exception.class"),
        "stacktrace": headers.text(p.DLQ_ERRORS + "stacktrace"),
        "deliveries": headers.count(p.DLQ_ERRORS + "delivery.count"),
        "replay_id": headers.text(p.REPLAY_ID),
        "replay_times": F.coalesce(headers.count(p.REPLAY_TIMES), F.lit(0)),
        "tags": headers.text(p.TAGS),
        "keys": headers.text(p.KEYS),
        "uniq_key": headers.text(p.UNIQ_KEY),
        "dialect": F.when(loop, "reconsume"),
        "malformed": F.when(loop, _malformed(headers)).otherwise(F.array().cast("array<string>")),
    }


def _origin(headers: HeaderColumns, loop: Column) -> dict[str, Column]:
    stored = headers.text(p.ORIGIN_MESSAGE_ID)
    identity = F.when(loop, F.when(stored != "", stored)).otherwise(place_of("topic", "partition", "offset"))
    whole = F.when(identity.rlike(_POSITION), identity)
    part_of = [F.split_part(whole, F.lit("/"), F.lit(number)) for number in (1, 2, 3)]
    origin_topic = F.when(loop, headers.text(p.RETRY_TOPIC))
    return {
        "origin_message_id": identity,
        "origin_topic": F.coalesce(F.when(origin_topic != "", origin_topic), part_of[0]),
        "origin_partition": part_of[1].try_cast("int"),
        "origin_offset": part_of[2].try_cast("bigint"),
        "born": F.when(loop, headers.moment(p.BORN_TIMESTAMP)).otherwise(F.col("timestamp")),
    }


def _malformed(headers: HeaderColumns) -> Column:
    """Return the names of reconsume's headers with invalid values."""
    return present_texts(
        *(headers.spoiled_text(name) for name in _TEXTS),
        *(headers.spoiled(name, headers.count(name)) for name in _COUNTS),
        *(headers.spoiled(name, headers.integer(name)) for name in _INTEGERS),
        *(headers.spoiled(name, headers.not_negative(name)) for name in _NOT_NEGATIVE),
    )
