"""The readers tell exactly what the producers wrote."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors import (
    SCHEMA,
    create_views,
    read_dead_letters,
    read_delays,
    read_kinds,
    read_messages,
    read_retries,
)
from tests.spark.histories.dead_letters import with_dead_letters
from tests.spark.histories.history import BORN_MS, GROUP, History, Written, headers

pytestmark = pytest.mark.kafka


def told(frame: DataFrame, history: History, *topics: str) -> list[tuple[Row, Written]]:
    """Each record that was written to the topics with the row that tells of it; no other rows."""
    assert frame.schema.simpleString() == SCHEMA.simpleString()
    rows = {(row.kafka_topic, row.partition, row.offset): row for row in frame.collect()}
    written = {(one.topic, one.partition, one.offset): one for one in history.of(*topics)}
    assert written.keys() == rows.keys()
    return [(rows[place], written[place]) for place in written]


def check(row: Row, written: Written) -> None:
    found = row.asDict()
    found["malformed"] = sorted(row.malformed)
    assert {name: found[name] for name in written.expected} == written.expected
    assert (row.key, row.value) == (written.key, written.value)
    assert [(header.key, header.value) for header in row.headers] == written.headers
    assert milliseconds(row.appended) == written.timestamp


def milliseconds(moment: dt.datetime) -> int:
    # Spark hands out local times without a zone.
    return round(moment.astimezone(dt.UTC).timestamp() * 1000)


def test_delays_tell_group_origin_attempt_level_and_damage(spark: SparkSession, history: History) -> None:
    topic = history.installation.settings.names.delay(10_000)
    frame = read_delays(spark, history.bootstrap_servers, topic_prefix=history.prefix)
    pairs = told(frame, history, topic)
    assert len(pairs) == 4
    for row, written in pairs:
        check(row, written)
        assert milliseconds(row.due) == written.timestamp + 10_000
    assert milliseconds(pairs[0][0].born) == BORN_MS
    assert "�" in pairs[2][0].target  # what is no UTF-8 breaks nothing


def test_retries_of_a_group_with_every_sort_of_character(spark: SparkSession, history: History) -> None:
    topic = history.installation.settings.names.retry(GROUP)
    for groups in (None, [GROUP]):
        frame = read_retries(spark, history.bootstrap_servers, groups, topic_prefix=history.prefix)
        ((row, written),) = told(frame, history, topic)  # and not the record that was aborted
        check(row, written)


def test_dead_letters_tell_why(spark: SparkSession, history: History) -> None:
    topic = history.installation.settings.names.dead_letter(GROUP)
    frame = read_dead_letters(spark, history.bootstrap_servers, topic_prefix=history.prefix)
    ((row, written),) = told(frame, history, topic)
    check(row, written)


def test_a_message_is_its_own_origin_whatever_headers_a_copy_left_on_it(spark: SparkSession, history: History) -> None:
    topic = history.installation.name("flights")
    ((row, written),) = told(read_messages(spark, history.bootstrap_servers, [topic]), history, topic)
    check(row, written)
    assert row.origin_message_id == f"{topic}/{written.partition}/{written.offset}"
    assert milliseconds(row.born) == written.timestamp


def test_several_kinds_in_one_pass(spark: SparkSession, history: History) -> None:
    names = history.installation.settings.names
    topics = (names.delay(10_000), names.retry(GROUP), names.dead_letter(GROUP), names.quarantine)
    for row, written in told(
        read_kinds(spark, history.bootstrap_servers, topic_prefix=history.prefix), history, *topics
    ):
        check(row, written)


def test_topics_whose_names_only_contain_ours_are_not_read(spark: SparkSession, history: History) -> None:
    """As MirrorMaker names the topics of another cluster."""
    one, topic = history.installation, history.installation.settings.names.dead_letter(GROUP)
    for name in (f"us-east.{topic}", f"us-east.{one.settings.names.quarantine}", f"{one.settings.names.send_back}.old"):
        one.admin.create(name, 1, -1, {})
        one.produce(name, b"of another cluster", headers=[("REAL_TOPIC", f"%DLQ%{GROUP}".encode())])
    assert len(told(read_dead_letters(spark, history.bootstrap_servers, topic_prefix=history.prefix), history, topic))
    kinds = ["dead_letter", "quarantine", "inbox"]
    rows = read_kinds(spark, history.bootstrap_servers, kinds, topic_prefix=history.prefix).select("kafka_topic")
    assert all(row.kafka_topic.startswith(history.prefix) for row in rows.distinct().collect())


def test_a_stream_tells_the_same(spark: SparkSession, history: History, tmp_path: Path) -> None:
    frame = read_kinds(spark, history.bootstrap_servers, topic_prefix=history.prefix, streaming=True)
    assert frame.isStreaming
    query = (
        frame.writeStream.format("memory")
        .queryName("streamed")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)
    batch = read_kinds(spark, history.bootstrap_servers, topic_prefix=history.prefix)
    assert sorted(map(str, spark.table("streamed").collect())) == sorted(map(str, batch.collect()))


def test_views_answer_sql(spark: SparkSession, history: History) -> None:
    views = create_views(spark, history.bootstrap_servers, topic_prefix=history.prefix)
    names = ("delays", "retries", "dead_letters", "failures", "attempts", "lateness")
    assert views == [f"reconsume_{name}" for name in names]
    (row,) = spark.sql(
        "SELECT d.group, d.cause, count(*) AS n FROM reconsume_dead_letters d "
        "JOIN reconsume_retries r USING (origin_message_id) WHERE d.attempt > 16 GROUP BY ALL"
    ).collect()
    assert tuple(row) == (GROUP, "no dep_time", 1)


def test_a_replay_is_an_attempt_and_no_failure(spark: SparkSession, bootstrap_servers: str) -> None:
    one = with_dead_letters(bootstrap_servers, 0)
    names = one.settings.names
    own = {"RETRY_TOPIC": "flights", "ORIGIN_MESSAGE_ID": "flights/0/1", "REAL_TOPIC": f"%RETRY%{GROUP}"}
    replay = {"REPLAY_ID": "p", "REPLAY_TIMES": "1"}
    one.produce(names.delay(0), b"v", headers=headers(RECONSUME_TIME="0", **own, **replay))
    # Send-backs before and after it; the count of one is damaged.
    for count, more in (("1", {}), ("1", replay), ("?", replay)):
        one.produce(names.delay(1_000), b"v", headers=headers(RECONSUME_TIME=count, **own, **more))
    create_views(spark, bootstrap_servers, topic_prefix=names.prefix)
    rows = spark.sql("SELECT replay_times, attempt FROM reconsume_failures").collect()
    assert {tuple(row) for row in rows} == {(0, 1), (1, 1), (1, None)}
    (row,) = spark.sql("SELECT count(*) FROM reconsume_attempts WHERE outcome = 'waiting'").collect()
    assert row[0] == 4


def test_options_of_the_source_pass_through(spark: SparkSession, history: History) -> None:
    options = {"startingTimestamp": "1", "kafka.isolation.level": "read_uncommitted"}
    frame = read_retries(spark, history.bootstrap_servers, topic_prefix=history.prefix, options=options)
    assert sorted(bytes(row.value) for row in frame.collect()) == [b"aborted", b"v"]


@pytest.mark.parametrize(
    ("topics", "message"), [([], "no topic is given"), (["%RETRY%x"], "'%RETRY%x' is illegal in Kafka")]
)
def test_topics_that_cannot_be_are_refused(
    spark: SparkSession, history: History, topics: list[str], message: str
) -> None:
    with pytest.raises(IllegalSetting, match=message):
        read_messages(spark, history.bootstrap_servers, topics)
    with pytest.raises(IllegalSetting, match="either groups or topics"):
        read_dead_letters(spark, history.bootstrap_servers, ["g"], topics=["t"])
    with pytest.raises(IllegalSetting, match="'undead' is unknown"):
        read_kinds(spark, history.bootstrap_servers, ["undead"])
