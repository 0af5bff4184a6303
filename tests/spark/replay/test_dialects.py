"""Dead letters of other systems, with the headers that their documentation and sources give."""

from __future__ import annotations

import struct
from itertools import islice
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.wire.properties import Header
from reconsume.spark_connectors.dialects import FAMILIES
from reconsume.spark_connectors.schema import SCHEMA, typed
from tests.spark.histories.dead_letters import dead_letter_headers
from tests.spark.histories.history import headers

pytestmark = pytest.mark.more

BORN = 1_700_000_000_000


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


def named(prefix: str, **values: str) -> list[Header]:
    return [(prefix + name.replace("_", "-"), value.encode()) for name, value in values.items()]


SPRING_DLT: list[Header] = [
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", int32(3)),
    ("kafka_dlt-original-offset", int64(5_000_000_000)),
    ("kafka_dlt-original-timestamp", int64(BORN)),
    ("kafka_dlt-original-timestamp-type", b"CreateTime"),
    ("kafka_dlt-original-consumer-group", b"billing"),
    *named(
        "kafka_dlt-exception-",
        fqcn="org.springframework.kafka.listener.ListenerExecutionFailedException",
        cause_fqcn="java.lang.IllegalStateException",
        message="Listener failed",
        stacktrace="org.spring…",
    ),
]
SPRING_RETRY: list[Header] = [
    ("retry_topic-attempts", int32(1)),
    ("retry_topic-attempts", int32(4)),
    ("retry_topic-original-timestamp", (BORN).to_bytes(6, "big")),
    ("retry_topic-backoff-timestamp", (BORN + 1).to_bytes(6, "big")),
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", int32(0)),
    ("kafka_original-offset", int64(42)),
    ("kafka_original-timestamp", int64(BORN + 5)),
    ("kafka_dlt-original-consumer-group", b"billing"),
    *named("kafka_exception-", fqcn="x.Y", message="Listener failed", stacktrace="…"),
]
CONNECT = [
    *named(
        "__connect.errors.",
        topic="orders",
        partition="1",
        offset="7",
        task_id="0",
        stage="VALUE_CONVERTER",
        class_name="org.apache.kafka.connect.json.JsonConverter",
    ),
    ("__connect.errors.connector.name", b"jdbc"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", b"no schema"),
    ("__connect.errors.exception.stacktrace", b"\xff\xfe"),
]
SMALLRYE = named(
    "dead-letter-",
    exception_class_name="java.lang.IllegalStateException",
    cause_class_name="java.io.IOException",
    reason="boom",
    cause="disk full",
    topic="orders",
    partition="2",
    offset="9",
)
SMALLRYE_DELAYED = named(
    "delayed-",
    retry_count="3",
    original_timestamp=str(BORN),
    exception_class_name="java.lang.IllegalStateException",
    reason="boom",
    topic="orders",
    partition="2",
    offset="9",
)
PULSAR = headers(
    RECONSUMETIMES="16",
    DELAY_TIME="1000",
    REAL_TOPIC="persistent://public/default/orders-partition-3",
    RETRY_TOPIC="persistent://public/default/orders-billing-RETRY",
    REAL_SUBSCRIPTION="billing",
    ORIGIN_MESSAGE_ID="12:34:3",
    ORIGIN_MESSAGE_IDY_TIME="12:34:3",
)
SHARE_GROUP = [
    *named("__dlq.errors.", topic="orders", partition="1", offset="8", group="billing", message="rejected"),
    ("__dlq.errors.delivery.count", b"5"),
]

GOLDEN: dict[str, tuple[list[Header], dict[str, Any]]] = {
    "spring-dlt": (
        SPRING_DLT,
        {
            "group": "billing",
            "origin_message_id": "orders/3/5000000000",
            "origin_topic": "orders",
            "origin_partition": 3,
            "origin_offset": 5_000_000_000,
            "attempt": None,
            "born": BORN,
            "cause": "Listener failed",
            "exception_class": "java.lang.IllegalStateException",
            "stacktrace": "org.spring…",
        },
    ),
    "spring-retry-topic": (
        SPRING_RETRY,
        {
            "group": "billing",
            "origin_message_id": "orders/0/42",
            "attempt": 4,
            "born": BORN,
            "exception_class": "x.Y",
        },
    ),
    "kafka-connect": (
        CONNECT,
        {
            "group": "connect-jdbc",
            "origin_message_id": "orders/1/7",
            "attempt": None,
            "born": None,
            "cause": "no schema",
            "exception_class": "org.apache.kafka.connect.errors.DataException",
            "stacktrace": "��",
        },
    ),
    "smallrye": (
        SMALLRYE,
        {
            "group": None,
            "origin_message_id": "orders/2/9",
            "attempt": None,
            "cause": "boom",
            "exception_class": "java.lang.IllegalStateException",
        },
    ),
    "smallrye-delayed": (
        SMALLRYE_DELAYED,
        {"group": None, "origin_message_id": "orders/2/9", "attempt": 3, "born": BORN, "cause": "boom"},
    ),
    "pulsar": (
        PULSAR,
        {
            "group": "billing",
            "origin_message_id": "12:34:3",
            "origin_topic": "orders",
            "origin_partition": 3,
            "origin_offset": None,
            "attempt": 16,
            "target": None,
        },
    ),
    "kafka-share-group": (
        SHARE_GROUP,
        {
            "group": "billing",
            "origin_message_id": "orders/1/8",
            "attempt": 5,
            "deliveries": 5,
            "cause": "rejected",
        },
    ),
}


SEVERAL = [
    ([*SPRING_RETRY, *CONNECT], ("kafka-connect", "orders/1/7")),
    ([*CONNECT, *SPRING_RETRY], ("spring-retry-topic", "orders/0/42")),
    ([*dead_letter_headers(1), ("__dlq.errors.topic", b"flights"), *SPRING_DLT], ("spring-dlt", "orders/3/5000000000")),
    ([*SPRING_DLT, *dead_letter_headers(1), ("__dlq.errors.topic", b"flights")], ("reconsume", "flights/0/1")),
    ([*SHARE_GROUP, *SMALLRYE], ("smallrye", "orders/2/9")),
]
DAMAGES: list[list[Header]] = [
    [("kafka_dlt-original-partition", b"\x01"), ("kafka_dlt-original-offset", b"42")],
    [("kafka_dlt-original-partition", None), ("kafka_dlt-original-offset", b"\xff" * 8)],
    [("kafka_dlt-original-partition", b""), ("kafka_dlt-original-offset", b"\x00" * 9)],
]
UNKNOWN: list[list[Header]] = [[], [("x", b"1"), ("TAGS", b"late")]]
RECORDS = {
    "golden": [record for record, _expected in GOLDEN.values()],
    "several": [record for record, _expected in SEVERAL],
    "damaged": [[*SPRING_DLT, *damage, ("REPLAY_TIMES", b"\xff")] for damage in DAMAGES],
    "unknown": UNKNOWN,
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, list[Row]]:
    """The records as `read_dead_letters(topics=…)` tells them."""
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    records = [record for group in RECORDS.values() for record in group]
    written = [(b"k", b"v", "dead", 0, number, None, record) for number, record in enumerate(records)]
    frame = typed(spark.createDataFrame(written, schema), "reconsume.", "dead_letter", foreign=True)
    assert frame.schema.simpleString() == SCHEMA.simpleString()
    found = iter(frame.withColumn("born", F.unix_millis("born")).orderBy("offset").collect())
    return {name: list(islice(found, len(group))) for name, group in RECORDS.items()}


def test_every_family_is_read_into_the_schema(rows: dict[str, list[Row]]) -> None:
    assert GOLDEN.keys() == {family.name for family in FAMILIES}
    for name, row in zip(GOLDEN, rows["golden"], strict=True):
        expected = {"dialect": name, "kind": "dead_letter", "malformed": [], "replay_times": 0} | GOLDEN[name][1]
        assert {column: row[column] for column in expected} == expected, name


def test_of_several_families_the_one_that_wrote_last_counts(rows: dict[str, list[Row]]) -> None:
    found = [(row.dialect, row.origin_message_id) for row in rows["several"]]
    assert found == [expected for _record, expected in SEVERAL]


def test_what_cannot_be_read_is_null_and_the_rest_is_told(rows: dict[str, list[Row]]) -> None:
    assert len(rows["damaged"]) == len(DAMAGES)
    for row in rows["damaged"]:
        assert (row.dialect, row.origin_topic, row.group) == ("spring-dlt", "orders", "billing")
        assert (row.origin_partition, row.origin_offset, row.origin_message_id) == (None, None, None)
        assert row.malformed == ["REPLAY_TIMES"]


def test_a_record_of_no_known_family_tells_where_it_stands(rows: dict[str, list[Row]]) -> None:
    assert len(rows["unknown"]) == len(UNKNOWN)
    for row in rows["unknown"]:
        assert (row.dialect, row.group, row.origin_topic, row.malformed) == ("reconsume", None, None, [])
