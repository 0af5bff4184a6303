"""Settings files of the pages are settings that a process takes; files of groups are such files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from reconsume.cli.main import app
from reconsume.operations.groups_file import parse_groups_file
from tests.support.docs.pages import blocks

FILES = [
    *(("docs/settings.md", "toml", process) for process in ("scheduler", "sidecar", "console")),
    *((page, "toml", "sidecar") for page in ("docs/quick-start.md", "docs/sidecar-push.md")),
    *(("docs/console.md", "toml", "console"), ("docs/sidecar.md", "yaml", "sidecar")),
]


@pytest.mark.parametrize(("page", "kind", "process"), FILES)
def test_a_process_takes_the_settings_of_a_page(page: str, kind: str, process: str, tmp_path: Path) -> None:
    found = blocks(page, kind)
    assert found
    for block in found:
        file = tmp_path / f"settings.{kind}"
        file.write_text(_with_secrets(block, tmp_path))
        checked = CliRunner().invoke(app, ["config", "check", "--config", str(file), "--process", process])
        assert checked.exit_code == 0, f"{block}\n{checked.output}{checked.exception}"


def _with_secrets(text: str, folder: Path) -> str:
    (folder / "secret").write_text("0123456789abcdef0123456789abcdef")
    for name in ("session-key", "oidc", "api", "shop", "air"):
        text = text.replace(f"/run/secrets/{name}", str(folder / "secret"))
    return text


def test_groups_as_a_file() -> None:
    found = [yaml.safe_load(one) for one in blocks("docs/operate.md", "yaml")]
    assert [sorted(parse_groups_file(one).groups) for one in found] == [["arrivals", "departures"]]
