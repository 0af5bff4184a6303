"""The ports of a local broker, without a broker."""

from __future__ import annotations

import pytest

from reconsume.cli.broker import kafka as kafka_module
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_ports


def test_ports_that_are_drawn_together_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = free_ports(2)
    draws = iter([one, one, other])
    monkeypatch.setattr("secrets.choice", lambda _ports: next(draws))
    assert free_ports(2) == [one, other]


@pytest.mark.parametrize("named", [0, 23_456])
def test_broker_and_controller_get_different_ports(monkeypatch: pytest.MonkeyPatch, named: int) -> None:
    kafka = LocalKafka(port=named)
    monkeypatch.setattr(kafka_module, "free_ports", lambda _count: [23_456, 23_457])
    monkeypatch.setattr(LocalKafka, "_start", lambda _self, _deadline: None)
    kafka._start_on(named, 1.0)
    broker, controller = kafka._ports
    assert {broker, controller} == {23_456, 23_457}
    assert not named or broker == named
