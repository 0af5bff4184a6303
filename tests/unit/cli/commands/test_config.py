"""`reconsume config`: right and wrong settings, secrets, the schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import validate
from typer.testing import CliRunner

from reconsume.cli.main import app
from reconsume.delay_levels.errors import IllegalSetting

SIDECAR = """
bootstrap_servers = "kafka-1:9092"
[kafka]
"sasl.password" = "hunter2"
[sidecar]
token = "0123456789abcdef"
[[subscriptions]]
group = "departures"
topics = { flights = "*" }
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "reconsume.toml"
    path.write_text(SIDECAR)
    return str(path)


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["config", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_settings_that_can_be(file: str) -> None:
    assert run("check", "--process", "sidecar", "--config", file) == "ok\n"
    assert run("check") == "ok\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--process", "consumer"], "use scheduler, sidecar or console"), (["-X", "x"], "write KEY=VALUE")],
)
def test_settings_that_cannot_be(arguments: list[str], said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        run("check", *arguments)


def test_subscriptions_are_json_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_SUBSCRIPTIONS", '[{"group": "departures", "topics": ["flights"]}]')
    (one,) = json.loads(run("show", "--process", "sidecar"))["subscriptions"]
    assert (one["group"], one["topics"]) == ("departures", {"flights": "*"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "map[group:departures]",
            r"setting subscriptions \(environment\): this text is not JSON .*; write a list such as",
        ),
        ('[{"group": "g", "topcs": []}]', r"setting subscriptions\.0\.topcs \(environment\): unknown setting"),
    ],
)
def test_wrong_json_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch, text: str, said: str) -> None:
    monkeypatch.setenv("RECONSUME_SUBSCRIPTIONS", text)
    with pytest.raises(IllegalSetting, match=said):
        run("check", "--process", "sidecar")


def test_a_wrong_file_is_told_by_setting_and_place(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(SIDECAR.replace("topics =", "topcs ="))
    with pytest.raises(IllegalSetting, match=r"subscriptions\.0\.topcs \(file .*wrong\.toml\): unknown"):
        run("check", "--process", "sidecar", "--config", str(file))


def test_what_is_in_force_is_shown_without_secrets(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECONSUME_TOPIC_PREFIX", "eu.")
    text = run("show", "--process", "sidecar", "--config", file, "-b", "kafka-2:9092")
    shown = json.loads(text)
    assert (shown["bootstrap_servers"], shown["topic_prefix"]) == ("kafka-2:9092", "eu.")
    assert shown["subscriptions"][0]["group"] == "departures"
    assert shown["kafka"].keys() == {"sasl.password"}
    assert "hunter2" not in text
    assert "0123456789abcdef" not in text


@pytest.mark.parametrize("process", ["scheduler", "sidecar"])
def test_the_schema_takes_what_the_process_takes(process: str) -> None:
    schema = json.loads(run("schema", "--process", process))
    validate({"bootstrap_servers": "a:1", "logging": {"level": "DEBUG"}}, schema)
    assert ("subscriptions" in schema["properties"]) == (process == "sidecar")
