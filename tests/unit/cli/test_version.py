"""`reconsume --version` names what a report of a problem needs."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import confluent_kafka
import pytest
from typer.testing import CliRunner

from reconsume import __version__
from reconsume.cli import version
from reconsume.cli.main import app


def run() -> str:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    return result.stdout


def test_it_names_the_versions() -> None:
    line = run()
    assert line.startswith(f"reconsume {__version__} (Python 3.")
    assert f"librdkafka {confluent_kafka.libversion()[0]}, pyspark " in line
    assert line.count("\n") == 1


def test_it_says_that_spark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(version, "version", missing)
    assert run().endswith(", without pyspark)\n")
