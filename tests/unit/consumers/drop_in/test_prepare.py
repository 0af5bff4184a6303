"""What a drop-in does before it subscribes, whatever is raised there."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.consumers.drop_in import send_back_client
from reconsume.consumers.drop_in.send_back_client import SendBackClient
from reconsume.consumers.drop_in.settings import DropInSettings
from reconsume.delay_levels.errors import SubscriptionGroupNotExist

OURS: dict[str, Any] = {
    "max_reconsume_times": None,
    "delay_levels": None,
    "topic_prefix": "reconsume.",
    "exactly_once": False,
    "dead_letter_on": (),
}


@dataclass
class Follower:
    """Has read the groups."""

    groups: Groups
    waits: int = 0

    def wait_until_loaded(self, _stop: object) -> bool:
        self.waits += 1
        return True


def test_an_unexpected_error_is_raised_at_once_and_not_taken_for_a_silent_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SendBackClient(DropInSettings.of([{"group.id": "departures"}], {}, OURS))

    def load(_stop: object) -> bool:
        raise RuntimeError("a defect")

    monkeypatch.setattr(client, "_followed", lambda: SimpleNamespace(wait_until_loaded=load))
    with pytest.raises(RuntimeError, match="a defect"):
        client.prepare(600)


def test_after_an_error_it_is_prepared_anew_and_a_success_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SendBackClient(DropInSettings.of([{"group.id": "departures"}], {}, OURS))
    follower, made = Follower(Groups(own_auto_create=False)), list[Groups]()
    monkeypatch.setattr(client, "_followed", lambda: follower)
    monkeypatch.setattr(send_back_client, "make_retry_topic", lambda _settings, groups, _stop: made.append(groups))
    for _ in range(2):
        with pytest.raises(SubscriptionGroupNotExist):
            client.prepare(600)
    follower.groups = Groups(
        by_name={"departures": SubscriptionGroupConfig(group_name="departures")}, own_auto_create=False
    )
    client.prepare(600)
    client.prepare(600)
    client.close()
    assert made == [follower.groups]


def test_a_closed_client_keeps_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SendBackClient(DropInSettings.of([{"group.id": "departures"}], {}, OURS))
    follower = Follower(Groups(own_auto_create=False))
    monkeypatch.setattr(client, "_followed", lambda: follower)
    for _ in range(2):
        with pytest.raises(SubscriptionGroupNotExist):
            client.prepare(600)
        client.close()
    assert follower.waits == 1
