"""Files in YAML that people write by hand."""

from __future__ import annotations

from pathlib import Path
from traceback import format_exception

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.bridge.process.yaml_text import parse_yaml
from reconsume.cli.commands.groups_file import apply_groups
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting

NAMES = ["007", "no", "on", "12:30", "1_000", "2026-01-01", "~", "0x10", "1.50"]
NOT_YAML = [
    *("a: {b: 1, b: 2}", "a: 2026-99-99", "[" * 400, 'a: "\\UFFFFFFFF"', "a: {", "a: \x00", "--- {}\n--- {}"),
    *("a: !!int ''", "a: !!float ''", "a: !!timestamp x", "a: !!bool x", "? [a]\n: b"),
]
SECRET = "S3cret"
SECRETS = [
    *("@S3cret", "%S3cret", "S3cret: x", "!S3cret", "!S3cret!x", "!!S3cret", "!<S3cret>", "*S3cret", "`S3cret"),
    *("'S3cret' x", "[S3cret", "{S3cret", "|S3cret", "- S3cret", "!!int S3cret", "!!binary S3crété", "!!seq S3cret"),
    *("S3cret\n  sasl.password: S3cret", "&S3cret *S3cret2", "!!set {? [S3cret]}", "{<<: S3cret}", "S3cret\n  S3cret"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_counts_as_it_is_written(name: str) -> None:
    assert parse_yaml(f"groups:\n  {name}: {{}}") == {"groups": {name: {}}}


def test_a_key_that_is_written_twice_is_told_with_its_line() -> None:
    with pytest.raises(ValueError, match=r"(?s)key 'a' is written twice.*line 3"):
        parse_yaml("groups:\n  a: {}\n  a: {}")


@pytest.mark.parametrize("value", SECRETS)
def test_an_error_has_the_line_and_not_the_secret(tmp_path: Path, value: str) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(f"kafka:\n  sasl.password: {value}\n")
    with pytest.raises(IllegalSetting, match=r"not YAML.*line [234]") as refused:
        load_settings(Settings, file, {})
    assert SECRET not in str(refused.value)
    assert SECRET not in "".join(format_exception(refused.value))


def test_an_unclosed_quote_is_told_with_the_line_of_its_beginning() -> None:
    with pytest.raises(ValueError, match=r"scanning a quoted scalar from line 2.*end of stream.*line 4"):
        parse_yaml("a: 1\nb: 'c\nd: 2\n")


def test_keys_of_a_merge_may_be_overridden() -> None:
    text = "x: {a: &a {k: 1, l: 1}, b: {c: &b {<<: *a, k: 2}}}\nd: {<<: *b, k: 3}"
    assert parse_yaml(text) == {
        "x": {"a": {"k": 1, "l": 1}, "b": {"c": {"k": 2, "l": 1}}},
        "d": {"k": 3, "l": 1},
    }


@pytest.mark.parametrize("text", NOT_YAML)
def test_what_is_not_yaml_is_refused_in_each_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "one.yaml"
    file.write_text(text)
    with pytest.raises(IllegalSetting, match="not YAML"):
        load_settings(Settings, file, {})
    with pytest.raises(IllegalSetting, match="not YAML"):
        apply_groups(Here(Cluster(Settings()), as_json=False), file, yes=True)
