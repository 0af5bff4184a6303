"""The settings file and the environment: settings, or an error that names what is wrong."""

from __future__ import annotations

import string
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.delay_levels.errors import IllegalSetting

KNOWN = ["TOPIC_PREFIX", "SCHEDULER", "SCHEDULER__DELIVERY", "MANAGEMENT__PORT", "KAFKA_", "KAFKA", "TOPICS__X__Y"]
VARIABLES = st.dictionaries(
    (st.sampled_from(KNOWN) | st.text(string.ascii_uppercase + "_", max_size=12)).map("RECONSUME_".__add__),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    max_size=4,
)


@given(VARIABLES)
@example({"RECONSUME_SCHEDULER": "x", "RECONSUME_SCHEDULER__INSTANCE_ID": "y"})
@example({"RECONSUME_KAFKA": "x", "RECONSUME_KAFKA_SASL_PASSWORD": "y"})
@example({"RECONSUME_": "x", "RECONSUME___": "y"})
@example({"RECONSUME_A_FILE": ""})
def test_any_environment_is_settings_or_refused(environment: dict[str, str]) -> None:
    with suppress(IllegalSetting):
        assert isinstance(load_settings(Settings, environment=environment), Settings)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.binary())
@example("kafka = 3")
@example("[kafka]\n'a' = [1]")
@example("[kafka]\n'bootstrap.servers' = {x = 1}")
@example("scheduler = []\n")
@example("allowed_real_topics = 3")
@example("allowed_real_topics = ['(']")
@example("topic_prefix = 3")
@example("[topics]\nretention_days = nan")
@example("[topics]\nretention_days = inf")
@example("'a.b' = 1")
@example("a = " + "[" * 100_000)
@example("a = " + "9" * 5_000)
def test_any_file_is_settings_or_refused(tmp_path: Path, text: str | bytes) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with suppress(IllegalSetting):
        assert isinstance(load_settings(Settings, file, environment={}), Settings)


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "topic_prefix: 2026-99-99", "topics: " + "9" * 5_000, "topics: &a {scheduler: *a}"],
    ids=["deep", "no date", "long number", "within itself"],
)
def test_yaml_that_is_hostile_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(IllegalSetting, match=r"settings\.yaml"):
        load_settings(Settings, file, environment={})


def test_a_variable_that_is_nested_too_deeply_is_a_text() -> None:
    with pytest.raises(IllegalSetting, match="setting topics"):
        load_settings(Settings, environment={"RECONSUME_TOPICS": "[" * 100_000})


@pytest.mark.parametrize("days", ["nan", "inf", "1e300"])
def test_retention_is_a_time_that_there_is(tmp_path: Path, days: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"[topics]\nretention_days = {days}\n")
    with pytest.raises(IllegalSetting, match="retention_days"):
        load_settings(Settings, file, environment={})
