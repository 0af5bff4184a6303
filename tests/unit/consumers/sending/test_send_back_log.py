"""What the log says of failed messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig, SystemConfig
from reconsume.consumers.listener import ConsumeOrderlyContext
from reconsume.consumers.partitions.process_queue import ProcessQueue
from reconsume.consumers.sending.send_back_log import SendBackLog, fate_of, way_of
from reconsume.consumers.sending.senders import FailedMessage
from reconsume.delay_levels.errors import SendBackFailed
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.send_back_copy import Cause, Position, SendBackRequest, Stored
from tests.unit.consumers.doubles import RETRY_TOPIC, Clock, RecordingWriter, message_at
from tests.unit.consumers.listeners.test_orderly import SUCCESS, SUSPEND, World, flights

LOGGER = "reconsume.consumers.sending.send_back_log"
GROUPS = Groups()


def request(times: int = 0, **more: Any) -> SendBackRequest:
    position = Position("flights", 0, 42)
    stored = Stored("flights", str(position), times, 0)
    return SendBackRequest(group="departures", headers=[], stored=stored, **more)


def registered(**fields: Any) -> Groups:
    return Groups(by_name={"departures": SubscriptionGroupConfig(groupName="departures", **fields)})


FATES: list[tuple[SendBackRequest, Groups, str, bool]] = [
    (request(), GROUPS, "sent back, attempt 1 of 16, due in 10 s", False),
    (request(1), GROUPS, "sent back, attempt 2 of 16, due in 30 s", False),
    (request(15), GROUPS, "sent back, attempt 16 of 16, due in 2 h", False),
    (request(16), GROUPS, "dead letter after 16 of 16 retries", True),
    (request(delay_level=-1), GROUPS, "dead letter after 0 of 16 retries", True),
    (request(delay_level=5), GROUPS, "sent back, attempt 1 of 16, due in 1 m", False),
    (request(max_reconsume_times=1), GROUPS, "sent back, attempt 1 of 1, due in 10 s", False),
    (request(max_reconsume_times=0), GROUPS, "dead letter after 0 of 0 retries", True),
    (request(3, delay_level=-1, max_reconsume_times=2**31 - 1), GROUPS, "dead letter after 3 retries", True),
    (request(), registered(retryMaxTimes=3), "sent back, attempt 1 of 3, due in 10 s", False),
    (request(), registered(retryQueueNums=0), "dropped, retryQueueNums of its group is 0 or less", True),
    (request(), Groups(own_table=DelayLevels.parse("1s 2s 90s")), "sent back, attempt 1 of 16, due in 90 s", False),
    (
        request(),
        Groups(system=SystemConfig(autoCreateSubscriptionGroup=False)),
        *("sent back, a scheduler decides when it is due", False),
    ),
]


@pytest.mark.parametrize(("one", "groups", "text", "is_final"), FATES)
def test_it_says_where_a_message_goes_how_often_and_when(
    one: SendBackRequest, groups: Groups, text: str, is_final: bool
) -> None:
    assert fate_of(way_of(one, groups)) == (text, is_final)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(one.levelname, one.getMessage()) for one in caplog.records if one.name == LOGGER]


def send_back(writer: RecordingWriter, one: SendBackRequest, clock: Clock | None = None) -> None:
    writer.log, writer.groups = SendBackLog("departures", clock or Clock()), lambda: GROUPS
    past: list[Header] = [("RETRY_TOPIC", b"flights"), ("RECONSUME_TIME", b"%d" % one.stored.reconsume_times)]
    message, queue = message_at(42, topic=RETRY_TOPIC, headers=past), ProcessQueue(RETRY_TOPIC, 0)
    writer.send_back(
        FailedMessage(queue, message, one.delay_level, one.cause, one.max_reconsume_times, lambda *_: None)
    )


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (request(cause=Cause("no dep_time")), "WARNING"),
        (request(), "INFO"),
        (request(16), "WARNING"),
    ],
)
def test_a_line_after_an_error_and_of_a_dead_letter_is_a_warning(
    one: SendBackRequest, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    send_back(RecordingWriter(answers=[None]), one)
    assert lines(caplog) == [
        (level, f"<Message {RETRY_TOPIC}-0@42> of group departures: {fate_of(way_of(one, GROUPS)).text}")
    ]


def test_nothing_is_said_before_the_brokers_have_it_nor_if_they_refuse_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    writer = RecordingWriter()
    send_back(writer, request())
    assert lines(caplog) == []
    writer.waiting[0](SendBackFailed("refused"))
    assert lines(caplog) == []


def test_a_flood_is_ten_lines_a_second_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock(1_000_500)
    log = SendBackLog("departures", clock)
    for offset in range(500):
        log.tell(message_at(offset), fate_of(way_of(request(), GROUPS)), is_failure=True)
    log.tell(message_at(500), fate_of(way_of(request(16), GROUPS)), is_failure=True)
    said = lines(caplog)
    assert len(said) == 11
    assert "dead letter" in said[-1][1], "not hidden by the others"
    clock.now += 500
    log.tell(message_at(501), fate_of(way_of(request(), GROUPS)), is_failure=True)
    log.tell(message_at(502), fate_of(way_of(request(), GROUPS)), is_failure=True)
    told = [text for _, text in lines(caplog)[11:]]
    assert told[0].endswith("due in 10 s; 490 more such lines were left out")
    assert told[1].endswith("due in 10 s")


def test_what_is_left_out_is_there_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = SendBackLog("departures", Clock())
    for offset in range(12):
        log.tell(message_at(offset), fate_of(way_of(request(), GROUPS)), is_failure=False)
    assert [level for level, _ in lines(caplog)] == ["INFO"] * 10 + ["DEBUG"] * 2


def test_a_log_handler_that_raises_costs_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(logging.getLogger(LOGGER), "handle", raises)
    send_back(RecordingWriter(answers=[None]), request(16))
    world = World(lambda _batch, _context: SUSPEND).read(*flights(0)).run()
    assert world.after(1_000).counts == [[0], [1]]


@pytest.mark.parametrize(("maximum", "attempt"), [(5, "attempt 1 of 5"), (None, "attempt 1")])
def test_in_order_it_says_when_a_message_is_given_again(
    maximum: int | None, attempt: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def suspends(_batch: Sequence[int], context: ConsumeOrderlyContext) -> object:
        context.suspend_current_queue_time_millis = 3_000
        return SUSPEND

    World(suspends, maximum=maximum).read(*flights(0)).run()
    told = f"<Message flights-0@0> of group departures: given again in its place, {attempt}, in 3 s"
    assert lines(caplog) == [("INFO", told)]


def test_success_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    World(lambda _batch, _context: SUCCESS).read(*flights(0)).run()
    assert lines(caplog) == []
