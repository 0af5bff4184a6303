"""What `configure` does to a session that is being built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors import configure, packages


def builder(**options: str) -> SparkSession.Builder:
    made = SparkSession.Builder()
    # A class attribute in pyspark: without this, one test's options would be another's.
    made._options = {name.replace("_", "."): value for name, value in options.items()}
    return made


def options_of(made: SparkSession.Builder) -> dict[str, Any]:
    return dict(made._options)


def test_the_connector_fits_the_running_pyspark() -> None:
    assert packages() == [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"]
    with pytest.raises(IllegalSetting, match=r"Spark 3\.5\.9 is too old"):
        packages("3.5.9")


def test_what_other_helpers_added_stays() -> None:
    options = options_of(configure(configure(builder(spark_jars_packages="io.delta:delta-spark_2.13:4.0.0"))))
    assert options["spark.jars.packages"].split(",") == ["io.delta:delta-spark_2.13:4.0.0", *packages()]


def test_a_folder_of_jars_takes_the_place_of_maven(tmp_path: Path) -> None:
    with pytest.raises(IllegalSetting, match=r"has no spark-sql-kafka-0-10_2\.13"):
        configure(builder(), jars_dir=tmp_path)
    jars = [tmp_path / f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar", tmp_path / "z.jar"]
    for jar in jars:
        jar.touch()
    options = options_of(configure(builder(spark_jars="/own.jar"), jars_dir=tmp_path))
    assert options == {"spark.jars": ",".join(["/own.jar", *map(str, jars)])}


def test_a_spark_connect_server_has_its_own_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options_of(configure(builder(spark_remote="sc://x"))) == {"spark.remote": "sc://x"}
    monkeypatch.setenv("SPARK_REMOTE", "sc://x")
    assert options_of(configure(builder())) == {}
