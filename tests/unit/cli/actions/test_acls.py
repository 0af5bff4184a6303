"""`reconsume topics acls` as it is printed."""

from __future__ import annotations

import json

import pytest

from reconsume.bridge.process.settings import Settings
from reconsume.cli.actions.acls import show_acls
from reconsume.delay_levels.errors import IllegalSetting


def test_json_and_commands_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(*, as_json: bool) -> str:
        show_acls(
            Settings(),
            "consumer",
            group="departures",
            topics=["flights"],
            exactly_once=True,
            principal=None,
            as_json=as_json,
        )
        return capsys.readouterr().out

    rights = json.loads(shown(as_json=True))
    assert rights["principal"] == "User:consumer"
    commands = [line for line in shown(as_json=False).splitlines() if not line.startswith("#")]
    assert [one["command"] for one in rights["rights"]] == commands
    assert any("--transactional-id reconsume-departures-" in line for line in commands)


@pytest.mark.parametrize(
    ("role", "said"),
    [("boss", "there are scheduler: .*; consumer: "), ("consumer", "needs --group"), ("sidecar", "needs --group")],
)
def test_a_role_that_cannot_be_printed_says_why(role: str, said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        show_acls(Settings(), role, group=None, topics=(), exactly_once=False, principal=None, as_json=False)


def test_a_pattern_that_acls_cannot_say_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(allowed_real_topics=[r"orders\.(eu|us)", r"bills\..*"])
    show_acls(settings, "scheduler", group=None, topics=(), exactly_once=False, principal=None, as_json=False)
    printed = capsys.readouterr()
    assert "orders" in printed.err
    assert "bills" not in printed.err
    assert "--topic bills. --resource-pattern-type prefixed" in printed.out
