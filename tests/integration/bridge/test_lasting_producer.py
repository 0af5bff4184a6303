"""Send-backs and delayed messages go on when their producer can do nothing any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.bridge.librdkafka.connections import Connections
from reconsume.consumers import ConsumeConcurrentlyStatus, DelayProducer
from reconsume.delay_levels.errors import KafkaNotReachable
from tests.integration.installation import Deliveries, Installation, installation
from tests.support.brokers.fatal import fail_fatally
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SAID = "producer replaced, retrying"
MESSAGES = 2_000


class Forsaken(Connections):
    """Says twice, of the first three producers, after some turns that nobody is asked for a connection."""

    made = 0

    def check(self) -> None:
        """Each of them has taken records by then."""
        self.turns = getattr(self, "turns", 0) + 1
        if self.turns == 1:
            type(self).made += 1
        if self.turns == 8 and type(self).made <= 3:
            raise KafkaNotReachable("as if librdkafka looked for no broker")


@pytest.fixture
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers, allowed=["reminders-.*"]) as one:
        yield one


class Failing(Producer):
    """Three of them have a fatal error while they write, as after brokers have lost what they had acknowledged."""

    made = 0

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        type(self).made += 1
        self.taken = 0
        self.fails_at = 60 if type(self).made <= 3 else None

    def produce(self, *args: Any, **kwargs: Any) -> None:
        super().produce(*args, **kwargs)
        self.taken += 1
        if self.taken == self.fails_at:
            fail_fatally(self)


@pytest.fixture(autouse=True, params=["left alone", "fatal error"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forsaken, "made", 0)
    monkeypatch.setattr(Failing, "made", 0)
    if request.param == "left alone":
        monkeypatch.setattr("reconsume.bridge.kafka.lasting_producer.Connections", Forsaken)
    else:
        monkeypatch.setattr(
            "reconsume.bridge.kafka.lasting_producer.make_producer", lambda settings: Failing(dict(settings))
        )


def test_every_failed_message_is_sent_back(here: Installation, caplog: pytest.LogCaptureFixture) -> None:
    group, topic = here.name("shipping"), here.topic("orders")
    bodies = [b"%d" % number for number in range(MESSAGES)]
    here.produce(topic, *bodies)
    fails = Deliveries(lambda _messages, _context: ConsumeConcurrentlyStatus.RECONSUME_LATER)
    with here.consumer(group, topic, fails):
        wait_until(lambda: caplog.text.count(SAID) == 3, "three producers are replaced")
        here.produce(topic, b"after")
        wait_until(lambda: here.finished(group, topic) == MESSAGES + 1, "all are sent back and committed")
    waiting = Counter(one.value for one in here.waiting(1_000, group))
    inbox = Counter(one.value for one in here.read(here.settings.names.send_back))
    assert set(waiting) | set(inbox) == {*bodies, b"after"}


def test_delayed_messages_are_sent(here: Installation, caplog: pytest.LogCaptureFixture) -> None:
    topic = here.unique("reminders")
    here.admin.create(topic, 1, -1, {})
    with DelayProducer(
        bootstrap_servers=here.settings.bootstrap_servers, topic_prefix=here.settings.topic_prefix
    ) as producer:
        sent: list[bytes] = []
        while caplog.text.count(SAID) < 3:
            # What a producer has when it is given up is the caller's to send again.
            with suppress(KafkaNotReachable):
                producer.send(topic, body := b"%d" % len(sent), delay=timedelta(seconds=1))
                sent.append(body)
        producer.send(topic, b"after", delay=timedelta(seconds=1))
    found = {one.value for one in here.read(here.settings.names.send_back)}
    assert {*sent, b"after"} <= found
