"""What `configure` does to a session that is being built."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pyspark
import pytest
from packaging.requirements import Requirement
from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors import configure, packages
from reconsume.spark_connectors.connector import _PATCHES, _TESTED


def builder(**options: str) -> SparkSession.Builder:
    made = SparkSession.Builder()
    # A class attribute in pyspark: without this, one test's options would be another's.
    made._options = {name.replace("_", "."): value for name, value in options.items()}
    return made


def options_of(made: SparkSession.Builder) -> dict[str, Any]:
    return dict(made._options)


CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


@pytest.mark.parametrize(
    ("spark", "connector"),
    [
        ("4.0.0", "4.0.0"),
        ("4.0.5", "4.0.0"),
        ("4.1.0", "4.1.1"),
        ("4.1.4", "4.1.1"),
        ("4.1", "4.1.1"),
        ("4.2.0", "4.2.0"),
        ("4.2.1", "4.2.0"),
        ("4.2.17.dev1", "4.2.0"),
    ],
)
def test_the_connector_is_a_patch_of_the_same_minor_version_that_is_published_whole(spark: str, connector: str) -> None:
    assert packages(spark) == [f"{CONNECTOR}:{connector}"]


def test_the_running_pyspark_has_a_connector() -> None:
    assert packages() == packages(pyspark.__version__)


@pytest.mark.parametrize(("version", "why"), [("3.5.9", "too old"), ("dev", "too old"), ("4.3.0", "4.0 to 4.2")])
def test_a_spark_without_a_known_connector_is_refused_with_one_that_has(version: str, why: str) -> None:
    with pytest.raises(IllegalSetting, match=rf"Spark {re.escape(version)} .*{why}.*pip install 'pyspark>=4\.0,<4\.3'"):
        packages(version)


@pytest.mark.parametrize("extra", ["spark", "broker"])
def test_the_extras_bring_only_a_spark_with_a_known_connector(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [bound] = [one for one in project["optional-dependencies"][extra] if one.startswith("pyspark")]
    assert bound in str(_TESTED)
    allowed = Requirement(bound).specifier
    assert [f"{major}.{minor}" for major in (3, 4, 5) for minor in range(9) if f"{major}.{minor}.0" in allowed] == [
        f"{major}.{minor}" for major, minor in _PATCHES
    ]


def test_what_other_helpers_added_stays() -> None:
    options = options_of(configure(configure(builder(spark_jars_packages="io.delta:delta-spark_2.13:4.0.0"))))
    assert options["spark.jars.packages"].split(",") == ["io.delta:delta-spark_2.13:4.0.0", *packages()]


def test_a_folder_of_jars_takes_the_place_of_maven(tmp_path: Path) -> None:
    with pytest.raises(IllegalSetting, match=r"has no spark-sql-kafka-0-10_2\.13"):
        configure(builder(), jars_dir=tmp_path)
    minor = pyspark.__version__.rpartition(".")[0]
    (tmp_path / "spark-sql-kafka-0-10_2.13-3.9.0.jar").touch()
    with pytest.raises(IllegalSetting, match=rf"no spark-sql-kafka-0-10_2\.13-{minor}"):
        configure(builder(), jars_dir=tmp_path)
    (tmp_path / "spark-sql-kafka-0-10_2.13-3.9.0.jar").unlink()
    jars = [tmp_path / f"spark-sql-kafka-0-10_2.13-{minor}.99.jar", tmp_path / "z.jar"]
    for jar in jars:
        jar.touch()
    options = options_of(configure(builder(spark_jars="/own.jar"), jars_dir=tmp_path))
    assert options == {"spark.jars": ",".join(["/own.jar", *map(str, jars)])}


def test_a_spark_connect_server_has_its_own_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(configure(builder(spark_remote="sc://x"))) == {"spark.remote": "sc://x"}
    monkeypatch.setenv("SPARK_REMOTE", "sc://x")
    assert options_of(configure(builder())) == {}
