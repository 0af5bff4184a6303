"""The verdicts of trials of single records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconsume.bridge.scheduler.delivery.trials import Trials
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.writing.transactions import Undone
from reconsume.delay_levels.errors import KafkaNotReachable, RecordTooLarge

RECORD = Delivery("retry", 5, None, b"v", [], "delivered", "g")


class Answers(list[KafkaError | None]):
    """Transactions whose producers refuse the record at once with these errors, one after the other."""

    def produce(self, *_: Any, on_delivery: Callable[..., None], **_more: Any) -> None:
        if (error := self.pop(0)) is not None:
            raise KafkaException(error)
        on_delivery(None, None)

    def try_out(self, produce: Callable[[Any], None]) -> None:
        try:
            produce(self)
        except KafkaException as error:
            raise Undone(error.args[0]) from error


def trials(*answers: KafkaError | None) -> Trials:
    one = Trials({})
    one._transactions = cast("Any", Answers(answers))
    return one


def test_a_partition_that_a_producer_does_not_know_yet_is_no_verdict() -> None:
    unknown = KafkaError(KafkaError._UNKNOWN_PARTITION)
    assert trials(unknown, None).try_alone(RECORD) is None
    with pytest.raises(KafkaNotReachable, match="delivering a record alone: _UNKNOWN_PARTITION"):
        trials(unknown, unknown).try_alone(RECORD)


def test_a_record_that_is_too_large_is_refused_in_the_first_trial() -> None:
    assert isinstance(trials(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)).try_alone(RECORD), RecordTooLarge)
