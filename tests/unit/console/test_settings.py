"""Settings of a console, and what it says where something that it needs is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.cli.actions.processes import run_console
from reconsume.console.settings import ConsoleProcessSettings
from reconsume.console.sign_in.sign_in import SignIn
from reconsume.console.sign_in.tokens import read_secret
from reconsume.delay_levels.errors import IllegalSetting

TOKEN = "0123456789abcdef"


def test_settings_come_from_a_file_and_the_environment(tmp_path: Path) -> None:
    file, secret = tmp_path / "reconsume.toml", tmp_path / "token"
    file.write_text('bootstrap_servers = "kafka:9092"\n[console]\nread_only = true\nlisten = {host = "0.0.0.0"}\n')
    secret.write_text(TOKEN + "\n")
    environment = {
        "RECONSUME_CONSOLE__TOKEN_FILE": str(secret),
        "RECONSUME_CONSOLE__ALLOWED_HOSTS": "a.example b.example",
    }
    overrides = {"console": {"listen": {"port": 1}, "hide_values": True, "token_file": None}}
    settings = load_settings(ConsoleProcessSettings, file, environment, overrides)
    console = settings.console
    assert (console.listen.host, console.listen.port) == ("0.0.0.0", 1)
    assert (console.read_only, console.hide_values, console.allowed_hosts) == (True, True, ["a.example", "b.example"])
    assert console.read_token() == TOKEN
    assert TOKEN not in repr(settings)
    assert load_settings(Settings, file, environment).bootstrap_servers == "kafka:9092", "one file serves all processes"


def test_a_token_file_of_an_editor_that_writes_a_byte_order_mark_has_the_same_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\r\n", encoding="utf-8-sig")
    settings = load_settings(ConsoleProcessSettings, None, {}, {"console": {"token_file": str(file)}})
    assert settings.console.read_token() == TOKEN
    assert read_secret("console.tokens", None, file) == TOKEN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[console]\ntoken = 'short'", "setting console.token: a token needs at least 16 characters, this one has 5"),
        ("[console]\ntoken = 'sixteen or möre characters'", "setting console.token: a token must be one line of"),
        ('[console]\ntoken = "two lines of a\\ntoken"', "setting console.token: a token must be one line of"),
        ("[console]\ntoken_file = '/nowhere'", "setting console.token_file names a file that cannot be read: /nowhere"),
        ("[console]\nindex_folder = ''", "the path is empty; name a file or folder"),
        ("[console]\nreports_folder = ''", "the path is empty; name a file or folder"),
        ("[console]\ntoken = 'a'\ntoken_file = 'b'", "token and token_file are both set"),
        (
            "[console]\nreadonly = true",
            "unknown setting; known here: access, allowed_hosts, cause_labels, hide_values,",
        ),
        ("[console.listen]\nhost = '::'", "so it needs a token; name a file with one by --token-file"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text(text)
    with pytest.raises(IllegalSetting) as error:
        load_settings(ConsoleProcessSettings, file, {}, {}).console.read_token()
    assert why in str(error.value)


def test_sign_in_comes_from_the_environment_too(tmp_path: Path) -> None:
    tokens, key = tmp_path / "tokens", tmp_path / "key"
    tokens.write_text(f"anna {TOKEN}\n")
    key.write_text("x" * 32)
    environment = {
        "RECONSUME_CONSOLE__ACCESS": '[{"role": "operator", "teams": ["sre"], "groups": ["billing-*"]}]',
        "RECONSUME_CONSOLE__PROXY": '{"addresses": ["10.0.0.0/8"]}',
        "RECONSUME_CONSOLE__TOKENS_FILE": str(tokens),
        "RECONSUME_CONSOLE__SESSION_KEY_FILE": str(key),
        "RECONSUME_CONSOLE__LISTEN": '{"host": "::"}',
    }
    settings = load_settings(ConsoleProcessSettings, None, environment)
    console = settings.console
    assert (console.access[0].groups, console.read_token()) == (["billing-*"], None), "people show tokens of theirs"
    assert not SignIn(console, lambda: 0).is_open
    assert TOKEN not in repr(settings)


def test_on_this_machine_no_token_is_needed() -> None:
    assert ConsoleProcessSettings().console.read_token() is None


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(IllegalSetting, match=r"pip install '\.\[cli,console\]' in the checkout"):
        run_console(ConsoleProcessSettings())
