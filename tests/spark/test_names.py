"""The expressions read topic names exactly as the rules do."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.rules.durations import LONGEST_MS
from reconsume.delay_levels.wire.names import TopicNames, decode_name, encode_name
from reconsume.spark_connectors.names import POSITION, decoded_name, delay_ms, kind_of, shown_name

ODD = [
    *("a_5Fb", "a.5F5Fb", "a.5Fb", "a_b", "a_5F", ".5F", "_5F", "a.41", "a.2Db", "a.zz", "a.2", ".", "..", "", "a b"),
    *(
        ".C3",
        ".C3.BC",
        ".C3.28",
        ".ED.A0.80",
        ".EF.BF.BD",
        ".F0.9F.98.80",
        "%41",
        "a+b",
        "a*b",
        ".2B.2A.25.2E",
        "ü",
        ".c3.bc",
    ),
]


def decoded(encoded: str) -> str | None:
    try:
        return decode_name(encoded)
    except IllegalName:
        return None


def test_names_are_decoded_as_the_rules_decode_them(spark: SparkSession) -> None:
    chance = random.Random(5)
    alphabet = "aZ09_-.%+* /ü😀\x00F5"
    groups = ["".join(chance.choices(alphabet, k=chance.randint(1, 8))) for _ in range(2000)]
    cases = ODD + [encode_name(group) for group in groups]
    cases += ["".join(chance.choices("_5F.A2cb3", k=6)) for _ in range(2000)]
    frame = spark.createDataFrame([(case,) for case in cases], "encoded string")
    rows = frame.select("encoded", decoded_name(F.col("encoded")).alias("name")).collect()
    assert {row.encoded: row.name for row in rows} == {case: decoded(case) for case in cases}
    assert {decoded(encode_name(group)) for group in groups} == set(groups)


def test_topics_are_what_the_rules_say(spark: SparkSession) -> None:
    names = TopicNames("p.")
    delays = [0, 1, 999, 1_000, 10_000, 60_000, 90_000, 3_600_000, 7_200_000, 86_400_000, 90_000_000, LONGEST_MS]
    topics = [names.delay(delay) for delay in delays]
    topics += [
        "p.DELAY.60s",
        "p.DELAY.1x",
        "p.DELAY.",
        "p.DELAY.0m",
        "p.DELAY.367d",
        "p.DELAY.01s",
        "p.DELAY.99999999999d",
    ]
    topics += [names.send_back, names.quarantine, names.groups, "flights", names.retry("a.b"), names.dead_letter("ü")]
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    topic = F.col("topic")
    rows = frame.select(topic, delay_ms(topic, "p."), kind_of(topic, "p."), shown_name(topic, "p.")).collect()

    def delay_of(name: str) -> int | None:
        try:
            return names.delay_ms(name)
        except IllegalName:
            return None

    assert {row[0]: row[1] for row in rows} == {name: delay_of(name) for name in topics}
    assert {row[0]: row[3] for row in rows} == {name: names.rocketmq_name(name) for name in topics}
    kinds = {row[0]: row[2] for row in rows}
    assert (kinds["p.SEND_BACK"], kinds["p.GROUPS"], kinds["flights"]) == ("inbox", "message", "message")
    assert (kinds["p.RETRY.a.2Eb"], kinds["p.DLQ..C3.BC"]) == ("retry", "dead_letter")


def test_a_position_has_numbers_that_spark_can_read(spark: SparkSession) -> None:
    places = [
        "flights/0/1",
        "a/999999999/999999999999999999",
        "a/0/9999999999999999999",
        "a/9999999999/0",
        "a/b/0",
        "a/0",
    ]
    frame = spark.createDataFrame([(place,) for place in places], "place string")
    numbers = [F.substring_index(F.substring_index("place", "/", -number), "/", 1) for number in (2, 1)]
    read = frame.where(F.col("place").rlike(POSITION)).select(numbers[0].cast("int"), numbers[1].cast("bigint"))
    assert {tuple(row) for row in read.collect()} == {(0, 1), (999_999_999, 999_999_999_999_999_999)}
