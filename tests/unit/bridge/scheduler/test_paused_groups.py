"""The worker and a pause, on a Kafka in memory; tests/integration/groups/test_paused_groups.py has a real one."""

from __future__ import annotations

from datetime import timedelta

from reconsume.testing import InMemoryKafka

LANE = "reconsume.DELAY.1s"


def _sent_back(kafka: InMemoryKafka, group: str, number: int) -> None:
    headers = {"REAL_TOPIC": f"%RETRY%{group}", "ORIGIN_MESSAGE_ID": f"o/0/{number}", "RECONSUME_TIME": "1", "of": "me"}
    kafka.produce(LANE, b"%d" % number, key=b"k", headers=headers)


def test_due_records_of_a_paused_group_wait_beside_the_others_and_come_unchanged_and_in_order() -> None:
    with InMemoryKafka() as kafka:
        kafka.set_group("paused", retryPaused=True)
        for number in range(6):
            _sent_back(kafka, ("paused", "other")[number % 2], number)
        kafka.advance(timedelta(days=30))
        assert [one.value for one in kafka.records("reconsume.RETRY.other")] == [b"1", b"3", b"5"]
        assert [one.value for one in kafka.records("reconsume.PARKED.paused")] == [b"0", b"2", b"4"]
        assert kafka.records("reconsume.RETRY.paused") == []
        kafka.set_group("paused", retryPaused=False)
        _sent_back(kafka, "paused", 6)
        kafka.advance(timedelta(seconds=2))
        moved = kafka.records("reconsume.RETRY.paused")
        assert [one.value for one in moved] == [b"0", b"2", b"4", b"6"]
        sent = {one.value: (one.key, one.headers) for one in kafka.records(LANE)}
        assert all((one.key, one.headers) == sent[one.value] for one in moved)
        assert len(kafka.records("reconsume.PARKED.paused")) == 3


def test_dead_letters_of_a_paused_group_go_on() -> None:
    with InMemoryKafka() as kafka:
        kafka.set_group("paused", retryPaused=True)
        kafka.produce("reconsume.DELAY.0s", b"v", headers={"REAL_TOPIC": "%DLQ%paused", "ORIGIN_MESSAGE_ID": "o/0/1"})
        kafka.settle()
        assert len(kafka.records("reconsume.DLQ.paused")) == 1
