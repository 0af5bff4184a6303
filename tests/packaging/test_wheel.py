"""The built wheel, alone in an empty environment."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.docs.environments import build_wheel

ROOT = Path(__file__).parents[2]

_LOOK = """
import logging, sys
from importlib.util import find_spec
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
from reconsume.testing import InMemoryKafka
with InMemoryKafka() as kafka:
    assert kafka.settle() == []
assert logging.getLogger().handlers == [], logging.getLogger().handlers
assert logging.getLogger("reconsume").handlers == []
for name in ("pyspark", "typer", "rich", "pytest"):
    assert find_spec(name) is None and name not in sys.modules, name
print(PushConsumer.__name__, ConsumeConcurrentlyStatus.RECONSUME_LATER.value)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_types_and_the_demos_rows_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"reconsume/py.typed", "reconsume/cli/demo/flights.csv.gz"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def installed(folder: Path, *packages: str) -> Path:
    """Return the programs of an environment that has nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", *packages], check=True)
    return folder / "bin"


def test_the_command_line_works_with_the_oldest_packages_that_it_allows(wheel: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["cli"]]
    oldest = [one.replace(">=", "==") for one in wanted if not one.startswith("pyyaml")]  # its oldest has no wheel
    programs = installed(tmp_path / "venv", f"{wheel}[cli]", *oldest)
    for words in (["--help"], ["dlq", "list", "--help"], ["config", "check"]):
        run = subprocess.run([programs / "reconsume", *words], capture_output=True, text=True, check=False)
        assert (run.returncode, "Traceback" in run.stderr) == (0, False), run.stderr


def test_it_works_without_extras_and_leaves_logging_alone(wheel: Path, tmp_path: Path) -> None:
    programs = installed(tmp_path / "venv", str(wheel))
    python = programs / "python"
    look = subprocess.run([str(python), "-c", _LOOK], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (look.stdout.strip(), look.stderr) == ("PushConsumer RECONSUME_LATER", "")
    command = [str(programs / "reconsume"), "--help"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "pip install '.[cli]' in the checkout" in refused.stderr
    assert "Traceback" not in refused.stderr
