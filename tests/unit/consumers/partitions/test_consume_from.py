"""Where a partition without an offset starts: what the arguments ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, KafkaError, KafkaException, TopicPartition

from reconsume.consumers import ConsumeFromWhere, PushConsumer
from reconsume.consumers.partitions.consume_from import ConsumeFrom
from reconsume.consumers.partitions.offset_reset import OffsetsForTimes, first_offset
from reconsume.delay_levels.errors import IllegalSetting, KafkaRefused
from tests.unit.consumers.doubles import Clock

LAST = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MOMENT = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP


@pytest.mark.rule("TN-06", "TN-08")
@pytest.mark.parametrize(
    ("where", "from_beginning", "expected"),
    [
        (None, None, LAST),
        (None, True, FIRST),
        (None, False, LAST),
        (LAST, False, LAST),
        (FIRST, True, FIRST),
        (FIRST, None, FIRST),
    ],
)
def test_the_default_is_rocketmqs_and_conf_may_say_it_in_kafkas_words(
    where: ConsumeFromWhere | None, from_beginning: bool | None, expected: ConsumeFromWhere
) -> None:
    assert ConsumeFrom.of(where, None, from_beginning) == ConsumeFrom(expected)


@pytest.mark.parametrize(("where", "reset"), [(LAST, "earliest"), (FIRST, "latest"), (MOMENT, "earliest")])
def test_two_starts_that_contradict_each_other_are_refused(where: ConsumeFromWhere, reset: str) -> None:
    why = rf"consume_from_where {where.name} contradicts auto\.offset\.reset in conf"
    with pytest.raises(IllegalSetting, match=why):
        PushConsumer("departures", conf={"auto.offset.reset": reset}, consume_from_where=where)


@pytest.mark.rule("TN-07")
@pytest.mark.parametrize(
    "timestamp",
    [
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC),
        datetime(2026, 11, 21, 10, 30, tzinfo=timezone(timedelta(hours=1))),
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC).astimezone().replace(tzinfo=None),
        datetime(2026, 11, 21, 9, 30, tzinfo=UTC).astimezone().strftime("%Y%m%d%H%M%S"),
    ],
)
def test_a_timestamp_is_a_moment_or_rocketmqs_text_in_local_time(timestamp: str | datetime) -> None:
    assert ConsumeFrom.of(MOMENT, timestamp, None) == ConsumeFrom(MOMENT, 1_795_253_400_000)


def test_without_a_timestamp_it_is_half_an_hour_ago() -> None:
    assert ConsumeFrom.of(MOMENT, None, None, Clock(10_000_000)).timestamp_ms == 8_200_000


@pytest.mark.parametrize("text", ["", "2026", "2026-11-21 09:30", "20261321093000", "2026112109300", "202611210930000"])
def test_a_text_that_is_no_moment_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(IllegalSetting, match=f"consume_timestamp '{text}' must be yyyyMMddHHmmss in local time"):
        ConsumeFrom.of(MOMENT, text, None)


@pytest.mark.parametrize("where", [None, FIRST, LAST])
def test_a_timestamp_that_nothing_asks_for_is_refused(where: ConsumeFromWhere | None) -> None:
    with pytest.raises(IllegalSetting, match="consume_timestamp is for consume_from_where=CONSUME_FROM_TIMESTAMP"):
        ConsumeFrom.of(where, "20261121093000", None)


def answering(answer: TopicPartition | KafkaError) -> OffsetsForTimes:
    def offsets_for_times(asked: list[TopicPartition], _timeout: float) -> list[TopicPartition]:
        assert [(one.topic, one.partition, one.offset) for one in asked] == [("flights", 1, 5_000)]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return [answer]

    return offsets_for_times


@pytest.mark.parametrize(
    ("where", "answer", "offset"),
    [
        (FIRST, None, OFFSET_BEGINNING),
        (LAST, None, OFFSET_END),
        (MOMENT, TopicPartition("flights", 1, 7), 7),
        (MOMENT, TopicPartition("flights", 1, OFFSET_END), OFFSET_END),
        (MOMENT, KafkaError(KafkaError._TIMED_OUT), OFFSET_STORED),
    ],
)
def test_the_first_offset_is_that_of_the_moment_and_asked_for_again_when_nobody_answers(
    where: ConsumeFromWhere, answer: Any, offset: int
) -> None:
    assert first_offset("flights", 1, ConsumeFrom(where, 5_000), answering(answer)).offset == offset


def test_a_refusal_is_not_asked_for_again() -> None:
    refusal = answering(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaRefused, match="looking where flights-1 was at the moment to start from: no right"):
        first_offset("flights", 1, ConsumeFrom(MOMENT, 5_000), refusal)
