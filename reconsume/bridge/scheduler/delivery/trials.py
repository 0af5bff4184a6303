"""Trials of single records, in aborted transactions, to learn whether brokers refuse them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.kafka.errors import is_missing, is_refusal, translate
from reconsume.bridge.process.brokers_clock import BrokersClock, created_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.scheduler.delivery.orphaned_transactions import end_transactions
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.writing.transactions import ShutOut, Transactions, Undone
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError

logger = SafeLogger(__name__)

OF_TRIALS: Final = "-trial"
"""The end of the transactional id of a worker's trials; the beginning is the worker's id."""
_TRYING: Final = "delivering a record alone"
_TIMES: Final = 2
"""librdkafka 2.16 skips a sequence number after a refusal; brokers accept the record after next. See
`bridge/librdkafka/transactional_calls.py`."""


class Trials:
    """Tries records with a separate producer, which a refusal costs 30 ms; the worker's would have to be replaced.

    The producer is made for the first trial.

    Args:
        settings: librdkafka settings of a transactional producer, whose id ends with `OF_TRIALS`.
        time: the brokers' clock.
    """

    def __init__(self, settings: Mapping[str, Any], time: BrokersClock | None = None) -> None:
        self._settings = settings
        self._time = time
        self._transactions: Transactions | None = None

    def start(self) -> None:
        """End an open trial of a dead predecessor, which blocks readers of its target."""
        try:
            end_transactions(self._settings)
        except ReconsumeError as error:
            logger.warning("%s; an open trial of an earlier worker ends by its timeout", error)

    def try_alone(self, delivery: Delivery) -> ReconsumeError | None:
        """Return why the brokers refuse the record; raise `KafkaNotReachable` without a verdict."""
        if self._transactions is None:
            self._transactions = Transactions(self._settings)
        causes: list[str] = []
        for _ in range(_TIMES):
            error = self._cause(self._transactions, delivery)
            if error is None:
                return None
            # A missing topic is looked up, and the next producer knows partitions that were added.
            if is_refusal(error) and not is_missing(error):
                return translate(error, _TRYING)
            causes.append(f"{error.name()}: {error.str()}")
        raise KafkaNotReachable(f"{_TRYING}: {causes[-1]}")

    def _cause(self, transactions: Transactions, one: Delivery) -> KafkaError | None:
        """Return the error of the record's delivery report, or the reason for its absence."""
        reports: list[KafkaError | None] = []

        def produce(producer: Producer) -> None:
            def report(error: KafkaError | None, _message: Message) -> None:
                reports.append(error)

            record, headers = (one.topic, one.value, one.key, one.partition), cast("Any", one.headers)
            producer.produce(*record, on_delivery=report, timestamp=created_ms(self._time), headers=headers)

        try:
            transactions.try_out(produce)
        except (Undone, ShutOut) as error:
            return error.cause if not reports or reports[0] is None or not is_refusal(reports[0]) else reports[0]
        except KafkaException as error:
            raise translate(error, _TRYING) from error
        return reports[0] if reports else KafkaError(KafkaError._TIMED_OUT, "no delivery report")

    def close(self) -> None:
        """Release the producer."""
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None
