"""A loop that waits for a moment asks for records a few times, not until it comes."""

from __future__ import annotations

import time

from confluent_kafka import Consumer

from reconsume.bridge.librdkafka.short_polls import poll_until


def test_a_wait_for_a_part_of_a_millisecond_takes_at_least_that() -> None:
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    try:
        for seconds in (0.0002, 0.0009, 0.0019):
            polls, ends = 0, time.perf_counter() + seconds
            while (left := ends - time.perf_counter()) > 0:
                poll_until(consumer, left)
                polls += 1
            assert polls <= 10
    finally:
        consumer.close()
