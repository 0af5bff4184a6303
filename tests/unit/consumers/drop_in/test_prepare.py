"""What a drop-in does before it subscribes, whatever is raised there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.consumers.drop_in.send_back_client import SendBackClient
from reconsume.consumers.drop_in.settings import DropInSettings

OURS: dict[str, Any] = {
    "max_reconsume_times": None,
    "delay_levels": None,
    "topic_prefix": "reconsume.",
    "exactly_once": False,
    "dead_letter_on": (),
}


def test_an_unexpected_error_is_raised_at_once_and_not_taken_for_a_silent_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SendBackClient(DropInSettings.of([{"group.id": "departures"}], {}, OURS))

    def load(_stop: object) -> bool:
        raise RuntimeError("a defect")

    monkeypatch.setattr(client, "_followed", lambda: SimpleNamespace(wait_until_loaded=load))
    with pytest.raises(RuntimeError, match="a defect"):
        client.prepare(600)
