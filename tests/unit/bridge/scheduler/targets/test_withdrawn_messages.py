"""Which records a worker drops because they were withdrawn."""

from __future__ import annotations

from typing import Any, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.scheduler.targets.routing import Delivery, Router
from reconsume.bridge.scheduler.targets.targets import Targets
from reconsume.bridge.scheduler.targets.timers import DelayTopics, Timers
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import Header, Headers
from reconsume.delay_levels.wire.resend import DeadLetterInfo, resend_headers
from reconsume.delay_levels.wire.send_back_copy import Position
from tests.unit.bridge.scheduler.targets.test_hostile_records import NOW, AllThere, NoCancels

NAMES = TopicNames()
KEY: Header = ("UNIQ_KEY", b"k")


class AllWithdrawn(NoCancels):
    """Every message was withdrawn."""

    def __contains__(self, withdrawal: bytes) -> bool:
        return True


def outcome(headers: Headers) -> str:
    admin = cast("Any", AllThere())
    timers = Timers(NAMES, DelayTopics(NAMES, admin, Groups), cast("Any", AllWithdrawn()), lambda: NOW)
    router = Router(NAMES, Targets(NAMES, ["orders"], admin, admin, Groups), Groups, timers)
    stored = TIMESTAMP_LOG_APPEND_TIME, NOW
    batch: list[Delivery] = []
    router.route([Message(topic=NAMES.delay(0), headers=[*headers], timestamp=stored)], batch, NAMES.delay(0))
    return batch[0].outcome


def test_a_dead_letter_that_is_resent_to_its_origin_is_not_dropped_for_a_withdrawal_that_came_too_late() -> None:
    dead: list[Header] = [KEY, ("RETRY_TOPIC", b"orders"), ("ORIGIN_MESSAGE_ID", b"orders/0/7")]
    letter = DeadLetterInfo.of("g", Position(NAMES.dead_letter("g"), 0, 1), dead)
    assert outcome(resend_headers(dead, letter, "resend-1", 0, to_origin=True)) == "delivered"


def test_a_delayed_message_is_dropped_also_with_the_headers_of_a_resent_one() -> None:
    resent: list[Header] = [KEY, ("REPLAY_ID", b"resend-1"), ("REAL_TOPIC", b"orders")]
    past = str(NOW - 1).encode()
    for waits in (("DELAY", b"3"), ("TIMER_ROLL_TIMES", b"0"), ("TIMER_DELIVER_MS", past)):
        assert outcome([*resent, waits]) == "cancelled"
    assert outcome([KEY, ("REAL_TOPIC", b"orders")]) == "cancelled"
