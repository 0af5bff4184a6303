"""A process under test that kills itself at one step: `python -m tests.chaos.programs.crash STEP ROLE ARGUMENTS…`.

STEP is `<when>:<call>:<number>`: before or after the number-th call of a method of librdkafka's clients, or `never`.
ROLE is `scheduler`, whose arguments are those of the command `reconsume`, or `consumer`, whose arguments are the
brokers' address, the topic prefix, the group, the topic, and whether it is exactly once.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from confluent_kafka import Consumer, Producer

from reconsume.bridge.kafka import clients
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message, PushConsumer

__all__ = ["Step"]


@dataclass
class Step:
    """Where to die.

    Attributes:
        call: `produce` counts records with a value; `acknowledged` is the call that tells that one is stored. With
            `_few` behind it, only in transactions with a record whose value begins with that.
        number: the first is 1.
    """

    when: str
    call: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Step:
        if text == "never":
            return cls("never", "", 0)
        when, call, number = text.split(":")
        return cls(when, call, int(number))

    def __str__(self) -> str:
        return f"{self.when}:{self.call}:{self.number}"

    def around(self, call: str, act: Callable[[], Any]) -> Any:
        """Do it, unless this is where to die."""
        if call != self.call:
            return act()
        self.number -= 1
        if self.number == 0 and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = act()
        if self.number == 0 and self.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class MortalProducer(Producer):
    """One of its calls may be the last."""

    step: ClassVar[Step]
    few: bool = False

    def begin_transaction(self, *given: Any) -> None:
        self.few = False
        self.step.around("begin", lambda: super(MortalProducer, self).begin_transaction(*given))

    def produce(self, topic: str, value: Any = None, *given: Any, **named: Any) -> None:
        if (told := named.get("on_delivery")) is not None:
            named["on_delivery"] = lambda *report: self.step.around("acknowledged", lambda: told(*report))
        self.few = self.few or (value or b"").startswith(b"few")
        counted = "" if value is None else "produce"
        self._around(counted, lambda: super(MortalProducer, self).produce(topic, value, *given, **named))

    def _around(self, call: str, act: Callable[[], Any]) -> Any:
        if self.few and self.step.call.endswith("_few"):
            call += "_few"
        return self.step.around(call, act)

    def flush(self, *given: Any) -> int:
        return int(self.step.around("flush", lambda: super(MortalProducer, self).flush(*given)))

    def send_offsets_to_transaction(self, *given: Any) -> None:
        self._around("send_offsets", lambda: super(MortalProducer, self).send_offsets_to_transaction(*given))

    def commit_transaction(self, *given: Any) -> None:
        self._around("commit_transaction", lambda: super(MortalProducer, self).commit_transaction(*given))

    def abort_transaction(self, *given: Any) -> None:
        self.step.around("abort", lambda: super(MortalProducer, self).abort_transaction(*given))


class MortalConsumer(Consumer):
    """Its commit may be the last."""

    step: ClassVar[Step]

    def commit(self, *given: Any, **named: Any) -> Any:
        return self.step.around("commit", lambda: super(MortalConsumer, self).commit(*given, **named))


class MortalClients(clients.Clients):
    """Makes these."""

    def producer(self, settings: Mapping[str, Any]) -> Producer:
        return MortalProducer(dict(settings))

    def consumer(self, settings: Mapping[str, Any]) -> Consumer:
        return MortalConsumer(dict(settings))


def consume(bootstrap_servers: str, prefix: str, group: str, topic: str, exactly_once: str) -> None:
    """Bodies that begin with `fail` do."""

    def listen(messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        fails = any((one.body or b"").startswith(b"fail") for one in messages)
        return ConsumeConcurrentlyStatus.RECONSUME_LATER if fails else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        group,
        bootstrap_servers=bootstrap_servers,
        conf={"auto.offset.reset": "earliest", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
        topic_prefix=prefix,
        exactly_once=exactly_once == "True",
    )
    consumer.subscribe(topic)
    consumer.register_message_listener(listen)
    consumer.run()


if __name__ == "__main__":
    MortalProducer.step = MortalConsumer.step = Step.parse(sys.argv[1])
    setattr(clients, "_REAL", MortalClients())  # noqa: B010 - constant for all but this program
    if sys.argv[2] == "consumer":
        consume(*sys.argv[3:])
    else:
        sys.argv = ["reconsume", *sys.argv[2:]]
        runpy.run_module("reconsume", run_name="__main__")
