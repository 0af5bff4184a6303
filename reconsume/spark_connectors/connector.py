"""The Kafka connector for Spark, in the version that fits the running pyspark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_types, type_name

_PATCHES: Final = {(4, 0): 0, (4, 1): 1, (4, 2): 0}
"""For each supported Spark, a patch version whose connector and dependencies are all on Maven Central. It serves every
patch of the same minor version. Some patches reach PyPI before Maven Central or never reach it, and for some Maven
Central lacks the token provider."""
_TESTED: Final = "pip install 'pyspark>=4.0,<4.3'"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_IN_PYSPARK: Final = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")
"""The connector depends on these 110 MB, which every Spark already has."""


def packages(version: str | None = None) -> list[str]:
    """Return the Maven coordinates for `spark.jars.packages`, of a complete patch of the same minor version.

    Args:
        version: the version of Spark; by default that of the running pyspark.

    Raises:
        IllegalSetting: reconsume is not tested with this Spark.
    """
    check_types(locals(), version=(str, NoneType))
    version = pyspark.__version__ if version is None else version
    numbers = _VERSION.match(version)
    minor = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if numbers is None or minor < min(_PATCHES):
        raise IllegalSetting(f"Spark {version} is too old: reconsume needs 4.0 or newer; {_TESTED}")
    if minor not in _PATCHES:
        raise IllegalSetting(
            f"the Kafka connector of Spark {version} is unknown: reconsume is tested with Spark 4.0 to 4.2; {_TESTED}, "
            "or give configure(builder, jars_dir=…) a folder with the connector's jars"
        )
    return [f"{_CONNECTOR}:{minor[0]}.{minor[1]}.{_PATCHES[minor]}"]


def configure(builder: SparkSession.Builder, *, jars_dir: str | os.PathLike[str] | None = None) -> SparkSession.Builder:
    """Add the Kafka connector to a session builder, and keep its other packages and jars.

    For a Spark Connect session (`builder.remote(…)`, or `SPARK_REMOTE`) nothing is added: the server has the jars.

    Args:
        builder: a builder before `getOrCreate`.
        jars_dir: a folder that holds the connector's jars, for machines without Maven Central.

    Raises:
        IllegalSetting: the folder has no connector for this Spark.
    """
    if not hasattr(builder, "getOrCreate"):
        raise IllegalSetting(f"builder must be SparkSession.builder, got {type_name(type(builder))}")
    check_types(locals(), jars_dir=(str, os.PathLike, NoneType))
    options: dict[str, object] = getattr(builder, "_options", {})
    if "spark.remote" in options or "SPARK_REMOTE" in os.environ:
        return builder
    if jars_dir is not None:
        return _append(builder, options, "spark.jars", _jars(Path(jars_dir)))
    _append(builder, options, "spark.jars.packages", packages())
    return _append(builder, options, "spark.jars.excludes", _IN_PYSPARK)


def _append(
    builder: SparkSession.Builder, options: dict[str, object], key: str, added: Iterable[str]
) -> SparkSession.Builder:
    """Return a comma-separated setting with these entries appended, each once."""
    present = [entry for entry in str(options.get(key, "")).split(",") if entry]
    return builder.config(key, ",".join(dict.fromkeys([*present, *added])))


def _jars(folder: Path) -> list[str]:
    """Return all jars of the folder; the connector for this Spark's minor version must be among them."""
    name, minor = _CONNECTOR.partition(":")[2], pyspark.__version__.rpartition(".")[0]
    if not any(folder.glob(f"{name}-{minor}.*.jar")):
        raise IllegalSetting(
            f"{folder} has no {name}-{minor}.*.jar for Spark {pyspark.__version__}; put the connector's jars there, or "
            "leave jars_dir out to take them from Maven Central"
        )
    return [str(jar.resolve()) for jar in sorted(folder.glob("*.jar"))]
