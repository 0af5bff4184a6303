"""`reconsume topics acls` as it is printed."""

from __future__ import annotations

import json

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.commands.topics import show_acls
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting


def test_json_and_commands_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*, as_json: bool) -> str:
        here = Here(Cluster(Settings()), as_json=as_json)
        show_acls(here, "consumer", group="departures", topic=["flights"], exactly_once=True)
        return capsys.readouterr().out

    rights = json.loads(shown(as_json=True))
    assert rights["principal"] == "User:consumer"
    commands = [line for line in shown(as_json=False).splitlines() if not line.startswith("#")]
    assert [one["command"] for one in rights["rights"]] == commands
    assert any("--transactional-id reconsume-departures-" in line for line in commands)


@pytest.mark.parametrize(
    ("role", "said"),
    [("boss", "use one of scheduler: .*; consumer: "), ("consumer", "needs --group"), ("sidecar", "needs --group")],
)
def test_a_role_that_cannot_be_printed_says_why(role: str, said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        show_acls(Here(Cluster(Settings()), as_json=False), role)


def test_a_pattern_that_acls_cannot_say_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(allowed_real_topics=[r"orders\.(eu|us)", r"bills\..*"])
    show_acls(Here(Cluster(settings), as_json=False), "scheduler")
    printed = capsys.readouterr()
    assert "orders" in printed.err
    assert "bills" not in printed.err
    assert "--topic bills. --resource-pattern-type prefixed" in printed.out
