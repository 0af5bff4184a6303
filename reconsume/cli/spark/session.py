"""The Spark session of a command: on this machine with all that it needs, on a cluster, or over Spark Connect."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from reconsume.cli.broker.jars import JarSet, Progress, cached_jars
from reconsume.cli.spark.java import own_folder, temporary_folder, use_java
from reconsume.cli.spark.options import SparkChoice
from reconsume.spark_connectors import configure, packages
from reconsume.spark_connectors.session import runs_tasks_once

_MODULES: Final = """<ivy-module version="2.0">
  <info organisation="reconsume" module="spark-kafka"/>
  <dependencies>
    <dependency org="{organisation}" name="{name}" rev="{version}" conf="default->default"/>
    <exclude org="org.apache.hadoop"/>
    <exclude org="org.scala-lang"/>
    <exclude org="org.slf4j"/>
    <exclude org="com.google.code.findbugs"/>
    <exclude org="org.lz4"/>
    <exclude org="org.xerial.snappy"/>
    <exclude org="com.github.luben"/>
    <exclude org="org.apache.spark" module="spark-tags_2.13"/>
  </dependencies>
</ivy-module>
"""
"""What the connector needs beyond the jars that pyspark has."""
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Spark's own 200 are for clusters: on one machine most of them would be empty, and each costs.
    "spark.sql.shuffle.partitions": "8",
    "spark.log.level": "ERROR",
}
_LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")


def connector_jars(java: Path, progress: Progress) -> Path:
    """The folder of the Kafka connector's jars for the running pyspark, fetched once.

    Raises:
        JarsNotFound: Ivy could not fetch them; with its last lines.
    """
    organisation, name, version = packages()[0].split(":")
    modules = _MODULES.format(organisation=organisation, name=name, version=version)
    wanted = JarSet(f"spark-kafka-{version}", f"Spark's Kafka connector {version}", modules, 5, 11)
    return cached_jars(java, progress, wanted)


def local_session(
    progress: Progress, *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session in a JVM of its own on this machine.

    Args:
        progress: told what is being fetched.
        master: `local[n]`.
        settings: Spark's, over ours.

    Raises:
        JavaNotFound: no Java of version 17 or newer.
        JarsNotFound: the connector could not be fetched.
        IllegalSetting: there is no folder to write to.
    """
    return open_session(progress, SparkChoice(master, None, dict(settings or {}), {}))


def open_session(progress: Progress, chosen: SparkChoice, *, sends: bool = True) -> SparkSession:
    """The session that a command line asks for.

    Args:
        progress: told what is being fetched or started.
        chosen: on the command line.
        sends: whether it writes to Kafka: then a failed task must not run again, for it would send its records again.
    """
    if chosen.remote is not None:
        progress(f"connecting to {chosen.remote}")
        return SparkSession.builder.remote(chosen.remote).getOrCreate()
    java, is_local = use_java(), chosen.master.startswith("local")
    jars = connector_jars(java, progress) if is_local else None
    progress("starting Spark" if is_local else f"starting Spark on {chosen.master}")
    once = {"spark.task.maxFailures": "1", "spark.speculation": "false"}
    ours = (_LOCAL | _places() if is_local else {}) | (once if sends and not runs_tasks_once(chosen.master) else {})
    settings: dict[str, Any] = ours | chosen.settings
    builder = SparkSession.builder.master(chosen.master).appName("reconsume").config(map=settings)
    # Spark makes a folder named artifacts where it is started, which may be where nobody may write.
    with chdir(own_folder()) if is_local else nullcontext():
        return configure(builder, jars_dir=jars).getOrCreate()


def _places() -> dict[str, str]:
    """Where Spark writes, and what it logs; of a temporary folder Java would not ask the environment."""
    folder = temporary_folder()
    java = (f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}", f'"-Djava.io.tmpdir={folder}"')
    return {"spark.local.dir": str(folder), "spark.driver.extraJavaOptions": " ".join(java)}
