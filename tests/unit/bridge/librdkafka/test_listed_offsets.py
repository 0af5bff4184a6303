from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from reconsume.bridge.kafka import patient_client
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.kafka.errors import is_passing
from reconsume.bridge.librdkafka.listed_offsets import EARLIEST, offsets_for
from reconsume.delay_levels.errors import KafkaNotReachable


class StalledClient:
    """Answers with these offsets, one a request; the last one stays."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def poll(self, _seconds: float) -> int:
        return 0

    def list_offsets(self, wanted: Mapping[Any, Any], **_: object) -> dict[Any, Future[Any]]:
        offset = self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]
        found: Future[Any] = Future()
        found.set_result(SimpleNamespace(offset=offset))
        return dict.fromkeys(wanted, found)


def admin_of(monkeypatch: pytest.MonkeyPatch, client: StalledClient, patience: float) -> KafkaAdmin:
    monkeypatch.setattr(patient_client, "make_admin", lambda _settings: client)
    return KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, patience=patience)


def test_an_answer_without_an_offset_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_of(monkeypatch, StalledClient(OFFSET_INVALID, 7), 30)
    assert admin.end_offsets([("flights", 0)]) == {("flights", 0): 7}


def test_a_broker_that_never_tells_the_offset_is_no_empty_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = admin_of(monkeypatch, StalledClient(OFFSET_INVALID), 0)
    with pytest.raises(KafkaNotReachable, match=r"reading offsets of flights-0: the answer has no offset"):
        admin.end_offsets([("flights", 0)])


@pytest.mark.parametrize(
    ("raised", "passes", "text"),
    [
        (KafkaError._UNKNOWN_PARTITION, True, "no leader, or no such topic; start the brokers"),
        (KafkaError._TIMED_OUT, True, "Timed out"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, "uthorization"),
    ],
)
def test_partitions_without_a_leader_may_have_one_later(raised: int, passes: bool, text: str) -> None:
    def ask(_asked: list[TopicPartition], _seconds: float) -> list[TopicPartition]:
        raise KafkaException(KafkaError(raised))

    with pytest.raises(KafkaException) as refused:
        offsets_for(ask, [("flights", 0)], EARLIEST, 1.0)
    assert is_passing(refused.value.args[0]) is passes
    assert text in refused.value.args[0].str()
