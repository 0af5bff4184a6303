"""One member of the group, as a program of its own: `python -m tests.chaos.programs.member <settings as JSON>`."""

from __future__ import annotations

import faulthandler
import json
import logging
import random
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Consumer,
    Message,
    PushConsumer,
    assigned_partitions,
    consume_loop,
    origin,
    polled_from,
    reconsume_times,
)
from reconsume.delay_levels.errors import PartitionLost
from tests.chaos.journal import Journal, What

__all__ = ["MAX_POLL_SECONDS", "MAX_RECONSUME_TIMES", "SESSION_SECONDS", "MemberSettings", "Style", "fails"]

Style = Literal["concurrently", "orderly", "drop-in"]

SESSION_SECONDS: Final = 4.0
MAX_POLL_SECONDS: Final = 5.0
MAX_RECONSUME_TIMES: Final = 1
_SLOW_SECONDS: Final = MAX_POLL_SECONDS + 2
_LOGGED: Final[dict[str, What]] = {
    "assigned": "assigned",
    "revoked": "revoked",
    "lost": "lost",
    "revoked while a listener runs, so its messages may run twice": "overdue",
}
_COMMITTING: Final = "committing offsets of "
_REBALANCING: Final = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS")

Uncommitted = dict[tuple[str, int], KafkaMessage]
"""The last message of each partition whose commit was refused."""


@dataclass(frozen=True)
class MemberSettings:
    """What a member is told.

    Attributes:
        folder: for the journal `<name>.jsonl`, and for marks of who was slow.
    """

    name: str
    folder: str
    bootstrap_servers: str
    topic_prefix: str
    group: str
    topic: str
    protocol: str
    exactly_once: bool
    style: Style

    @property
    def conf(self) -> dict[str, Any]:
        """Settings for librdkafka; with KIP-848 the brokers decide the session's timeout."""
        common: dict[str, Any] = {"auto.offset.reset": "earliest", "max.poll.interval.ms": int(MAX_POLL_SECONDS * 1000)}
        if self.protocol == "consumer":
            return common | {"group.protocol": "consumer"}
        return common | {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": 300,
        }


def fails(body: str, times: int) -> bool:
    """`ok-…` never, `fail-…` and `slow-…` once, `dead-…` always."""
    kind = body.partition("-")[0]
    return kind == "dead" or (kind in {"fail", "slow"} and times == 0)


class Member:
    """Works on messages as their bodies say, and writes it down."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self.journal = Journal(self._folder / f"{settings.name}.jsonl", settings.name)
        self._random = random.Random(settings.name)
        self._never = threading.Event()

    def work(self, body: str, times: int) -> bool:
        """Take a moment, or long for the first delivery of a slow one; gives whether it succeeded."""
        self._never.wait(_SLOW_SECONDS if self._is_first_slow(body) else self._random.uniform(0, 0.02))
        return not fails(body, times)

    def _is_first_slow(self, body: str) -> bool:
        if not body.startswith("slow-"):
            return False
        try:
            (self._folder / f"{body}.mark").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def deliver(self, messages: Sequence[Message]) -> bool:
        """What a listener does."""
        [message] = messages
        body = (message.body or b"").decode()
        what = {
            "topic": message.kafka.topic,
            "partition": message.kafka.partition,
            "offset": message.kafka.offset,
            "origin": str(message.origin),
            "body": body,
            "times": message.reconsume_times,
        }
        self.journal.write("begin", **what)
        succeeded = self.work(body, message.reconsume_times)
        self.journal.write("end", **what, succeeded=succeeded)
        return succeeded

    def concurrently(
        self, messages: Sequence[Message], _context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus:
        succeeded = self.deliver(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if succeeded else ConsumeConcurrentlyStatus.RECONSUME_LATER

    def orderly(self, messages: Sequence[Message], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.suspend_current_queue_time_millis = 10
        succeeded = self.deliver(messages)
        return ConsumeOrderlyStatus.SUCCESS if succeeded else ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Noted(logging.Handler):
    """Writes what the poll loop logs of its partitions into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        what, _, names = record.getMessage().partition(": ")
        if what.startswith("some listeners still run"):
            self._journal.write("left")
        elif what.startswith(_COMMITTING) and names.startswith(_REBALANCING):
            self._journal.write("refused", partitions=(what.removeprefix(_COMMITTING),))
        elif what in _LOGGED:
            listed = names.partition(";")[0]
            partitions = () if listed == "none" else tuple(listed.split(", "))
            self._journal.write(_LOGGED[what], partitions=partitions)


def push(settings: MemberSettings, member: Member) -> None:
    """A PushConsumer until SIGTERM."""
    for module in (consume_loop, assigned_partitions):
        logging.getLogger(module.__name__).addHandler(Noted(member.journal))
    consumer = PushConsumer(
        settings.group,
        bootstrap_servers=settings.bootstrap_servers,
        conf=settings.conf,
        topic_prefix=settings.topic_prefix,
        exactly_once=settings.exactly_once,
        max_reconsume_times=MAX_RECONSUME_TIMES,
        consume_thread_nums=8,
    ).subscribe(settings.topic)
    if settings.style == "orderly":
        consumer.register_message_listener(member.orderly, orderly=True)
    else:
        consumer.register_message_listener(member.concurrently)
    consumer.run()


def drop_in(settings: MemberSettings, member: Member) -> None:
    """A poll loop of its own, until SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    conf = settings.conf | {"bootstrap.servers": settings.bootstrap_servers, "group.id": settings.group}
    uncommitted: Uncommitted = {}

    def note(what: What) -> Any:
        def write(_consumer: object, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                uncommitted.pop((one.topic, one.partition), None)
            member.journal.write(what, partitions=tuple(f"{one.topic}-{one.partition}" for one in partitions))

        return write

    with Consumer(
        conf | {"enable.auto.commit": False},
        topic_prefix=settings.topic_prefix,
        exactly_once=settings.exactly_once,
        max_reconsume_times=MAX_RECONSUME_TIMES,
    ) as consumer:
        consumer.subscribe(
            [settings.topic], on_assign=note("assigned"), on_revoke=note("revoked"), on_lost=note("lost")
        )
        while not stop.is_set():
            polled = consumer.poll(0.2)
            if polled is None:
                commit_again(consumer, uncommitted)
                continue
            if (error := polled.error()) is not None:
                logging.getLogger("member").warning("polled: %s", error)
                continue
            deliver_polled(consumer, polled, member, uncommitted)


def commit_again(consumer: Consumer, uncommitted: Uncommitted) -> None:
    """Commit what was refused, for example during a rebalance: no message may follow whose commit includes it."""
    for where, polled in list(uncommitted.items()):
        try:
            consumer.commit(message=polled, asynchronous=False)
        except (PartitionLost, KafkaException) as error:
            logging.getLogger("member").warning("%s-%s not committed again: %s", *where, error)
        else:
            uncommitted.pop(where, None)


def deliver_polled(consumer: Consumer, polled: KafkaMessage, member: Member, uncommitted: Uncommitted) -> None:
    """Work on one message, then commit it or send it back."""
    where, times, body = polled_from(polled), reconsume_times(polled), (polled.value() or b"").decode()
    what = {
        "topic": where.topic,
        "partition": where.partition,
        "offset": where.offset,
        "origin": str(origin(polled)),
        "body": body,
        "times": times,
    }
    member.journal.write("begin", **what)
    succeeded, settled = member.work(body, times), True
    # A kill may come between the commit and the line that tells of it.
    member.journal.write("worked", **what, succeeded=succeeded)
    try:
        if succeeded:
            uncommitted[where.topic, where.partition] = polled
            consumer.commit(message=polled, asynchronous=False)
        else:
            consumer.send_message_back(polled)
        uncommitted.pop((where.topic, where.partition), None)
    except (PartitionLost, KafkaException) as error:
        logging.getLogger("member").warning("%s not settled: %s", what, error)
        settled = False
    member.journal.write("end", **what, succeeded=succeeded, settled=settled)


def main() -> None:
    """The program."""
    settings = MemberSettings(**json.loads(sys.argv[1]))
    logging.basicConfig(
        filename=Path(settings.folder) / f"{settings.name}.log",
        level=logging.INFO,
        format="%(asctime)s %(relativeCreated)d %(threadName)s %(levelname)s %(name)s %(message)s",
    )
    faulthandler.register(signal.SIGUSR1)
    member = Member(settings)
    (drop_in if settings.style == "drop-in" else push)(settings, member)


if __name__ == "__main__":
    main()
