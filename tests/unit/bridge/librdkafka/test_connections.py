"""A client that librdkafka has left alone is told from one whose brokers are away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from reconsume.bridge.librdkafka.connections import Connections
from reconsume.delay_levels.errors import KafkaNotReachable

SECOND = 1_000_000
UP = {"source": "learned", "state": "UP", "stateage": 3_600 * SECOND}
AWAY = {"source": "learned", "state": "TRY_CONNECT", "stateage": 3_600 * SECOND}
ASKED = {"source": "configured", "state": "INIT", "stateage": SECOND // 20}
IDLE = {"source": "learned", "state": "INIT", "stateage": 40 * SECOND}
LOGICAL = {"source": "logical", "state": "UP", "stateage": 3_600 * SECOND}


class Bench:
    """A client whose librdkafka reports every 10 s."""

    def __init__(self, **conf: Any) -> None:
        self.now = 0.0
        self.connections = Connections(conf, clock=lambda: self.now)

    def hears(self, *brokers: dict[str, Any], after: float = 10) -> None:
        self.now += after * 1000
        told = {"brokers": {str(number): one for number, one in enumerate(brokers)}}
        self.connections.settings["stats_cb"](json.dumps(told))

    def is_alone(self) -> bool:
        try:
            self.connections.check()
        except KafkaNotReachable:
            return True
        return False


@pytest.mark.parametrize(
    ("reports", "alone"),
    [
        ([[UP]] * 5, False),
        ([[UP], [], []], True),
        ([[UP], [], [UP]], False),
        ([[UP, LOGICAL], [IDLE, LOGICAL], [IDLE, LOGICAL]], True),
        ([[UP, IDLE, LOGICAL]] * 5, False),
        ([[AWAY]] * 100, False),
        ([[IDLE, ASKED, LOGICAL]] * 100, False),
        ([[IDLE], [AWAY], [IDLE]], False),
        ([[IDLE], [IDLE], [UP]], False),
        ([], False),
    ],
)
def test_it_is_alone_when_nobody_was_asked_for_a_connection_in_two_reports(
    reports: list[list[dict[str, Any]]], *, alone: bool
) -> None:
    """A logical broker, such as the group's coordinator, tells nobody where partitions are."""
    bench = Bench()
    for brokers in reports:
        bench.hears(*brokers)
    assert bench.is_alone() == alone


def test_a_pause_between_reports_is_no_loss() -> None:
    bench = Bench()
    bench.hears(UP)
    bench.hears(after=600)
    assert not bench.is_alone()
    bench.hears(after=1)
    assert not bench.is_alone()


def test_for_how_long_is_said() -> None:
    bench = Bench()
    for _ in range(3):
        bench.hears(IDLE)
    with pytest.raises(KafkaNotReachable, match="looked for no broker for 20 s"):
        bench.connections.check()


def test_the_users_own_statistics_go_on() -> None:
    told: list[str] = []
    bench = Bench(**{"stats_cb": told.append, "statistics.interval.ms": 1_000, "group.id": "g"})
    bench.hears(UP)
    assert json.loads(told[0])["brokers"]["0"] == UP
    assert bench.connections.settings["statistics.interval.ms"] == 1_000
    assert bench.connections.settings["group.id"] == "g"
    assert Bench().connections.settings["statistics.interval.ms"] == 10_000
