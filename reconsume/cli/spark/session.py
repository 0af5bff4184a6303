"""The Spark session of a command: self-contained on this machine, on a cluster, or over Spark Connect."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from reconsume.cli.broker.jars import JarSet, Progress, cached_jars
from reconsume.cli.spark.java import own_folder, temporary_folder, use_java
from reconsume.cli.spark.options import SparkChoice
from reconsume.spark_connectors import configure, packages
from reconsume.spark_connectors.failures import explained
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
"""The connector's dependencies beyond the jars of pyspark."""
_EVERYWHERE: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Pyspark 4 else looks up our line of code for each expression: two thirds of all calls into the JVM.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark's own patterns hide passwords. A client's private key would be in its UI and its event logs.
    "spark.sql.redaction.options.regex": r"(?i)url|jaas|keystore\.key",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Spark's default of 200 is for clusters: on one machine most partitions would be empty, at a cost.
    "spark.sql.shuffle.partitions": "8",
    "spark.log.level": "ERROR",
}
_LOG_CONFIG: Final = Path(__file__).with_name("log4j2.properties")


def connector_jars(java: Path, progress: Progress) -> Path:
    """Return the folder of the Kafka connector's jars for the running pyspark, downloaded once.

    Raises:
        JarsNotFound: Ivy failed; with its last lines.
    """
    organisation, name, version = packages()[0].split(":")
    modules = _MODULES.format(organisation=organisation, name=name, version=version)
    wanted = JarSet(f"spark-kafka-{version}", f"Spark's Kafka connector {version}", modules, 5, 11)
    return cached_jars(java, progress, wanted)


def local_session(
    progress: Progress, *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Make a session in a separate JVM on this machine.

    Args:
        progress: called with the current download.
        master: `local[n]`.
        settings: Spark settings, which override ours.

    Raises:
        JavaNotFound: no Java of version 17 or newer.
        JarsNotFound: the connector could not be downloaded.
        IllegalSetting: no folder is writable.
    """
    return open_session(progress, SparkChoice(master, None, dict(settings or {}), {}))


def open_session(progress: Progress, chosen: SparkChoice, *, sends: bool = True) -> SparkSession:
    """Make the session that the command line requests.

    Args:
        progress: called with the current download or start.
        chosen: the choice of the command line.
        sends: whether it writes to Kafka: then failed tasks must not be repeated, which would send records twice.
    """
    logging.getLogger().addFilter(_is_not_of_py4j)
    if chosen.remote is not None:
        progress("connecting to the Spark Connect server")  # its address may contain a token
        with explained("--remote"):
            return SparkSession.builder.remote(chosen.remote).getOrCreate()
    _leave_out_other_sparks(chosen.master)
    java, is_local = use_java(), chosen.master.startswith("local")
    jars = connector_jars(java, progress) if is_local else None
    progress("starting Spark" if is_local else f"starting Spark on {chosen.master}")
    once = {"spark.task.maxFailures": "1", "spark.speculation": "false"}
    ours = _EVERYWHERE | (_LOCAL | _places() if is_local else {})
    ours |= once if sends and not runs_tasks_once(chosen.master) else {}
    settings: dict[str, Any] = ours | chosen.settings
    builder = SparkSession.builder.master(chosen.master).appName("reconsume").config(map=settings)
    # Spark creates a folder named artifacts in the current folder, which may not be writable.
    with explained("Spark did not start"), chdir(own_folder()) if is_local else nullcontext():
        return configure(builder, jars_dir=jars).getOrCreate()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out what py4j (0.10.9.9) logs to the root logger: the tracebacks of errors that it also raises.

    Remove when: py4j logs them to a logger of its own.
    """
    return record.module != "java_gateway"


@contextmanager
def stopping(spark: SparkSession) -> Iterator[None]:
    """Stop a session after the block; an error of the block counts more than that of a Spark which has ended."""
    try:
        yield
    except BaseException:
        with suppress(ConnectionError, Py4JError):
            spark.stop()
        raise
    with explained("Spark did not stop"):
        spark.stop()


def _leave_out_other_sparks(master: str) -> None:
    """Remove the environment of other Sparks: the command line names the one that is used."""
    os.environ.pop("SPARK_REMOTE", None)
    if master.startswith("local"):
        for name in ("SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
            os.environ.pop(name, None)
        if os.environ.get("LC_ALL") in ("C", "POSIX"):
            os.environ["LC_ALL"] = "C.UTF-8"  # otherwise Java reads no path outside ASCII


def _places() -> dict[str, str]:
    """Return settings for Spark's folders and logs; Java ignores the environment for its temporary folder."""
    folder = temporary_folder()
    java = (f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}", f'"-Djava.io.tmpdir={folder}"')
    return {"spark.local.dir": str(folder), "spark.driver.extraJavaOptions": " ".join(java)}
