"""The Spark session of a command: on this machine with all that it needs, on a cluster, or over Spark Connect."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from reconsume.cli.broker.jars import JarSet, Progress, cache_folder, cached_jars
from reconsume.cli.broker.java import find_java
from reconsume.spark_connectors import configure, packages

__all__ = ["connector_jars", "java_home", "local_session", "open_session"]

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
_LOG_CONFIG: Final = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_JAVA: Final = """#!/bin/sh
# Spark's launcher asks for jdk.incubator.vector, which this Java lacks and Spark does without.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


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
    """
    java = find_java()
    jars = connector_jars(java, progress)
    progress("starting Spark")
    os.environ["JAVA_HOME"] = str(java_home(java))
    builder = SparkSession.builder.master(master).appName("reconsume")
    quiet = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_config().as_uri()}"}
    for key, value in {**_LOCAL, **quiet, **(settings or {})}.items():
        builder = builder.config(key, value)
    return configure(builder, jars_dir=jars).getOrCreate()


def open_session(
    progress: Progress, master: str, remote: str | None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session that a command line asks for.

    Args:
        progress: told what is being fetched or started.
        master: `local[n]`, or of a cluster; its driver runs here.
        remote: of a Spark Connect server, which must have the connector; then the others are not looked at.
        settings: Spark's.
    """
    if remote is not None:
        progress(f"connecting to {remote}")
        return SparkSession.builder.remote(remote).getOrCreate()
    if master.startswith("local"):
        return local_session(progress, master=master, settings=settings)
    progress(f"starting Spark on {master}")
    builder = SparkSession.builder.master(master).appName("reconsume")
    # A failed task that runs again would send its records again.
    exact = {"spark.task.maxFailures": "1", "spark.speculation": "false"}
    for key, value in {**exact, **(settings or {})}.items():
        builder = builder.config(key, value)
    return configure(builder).getOrCreate()


def _log_config() -> Path:
    """Errors only: Spark's own greeting and warnings are not the command's."""
    path = cache_folder() / "spark-log4j2.properties"
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(_LOG_CONFIG)
    fresh.rename(path)
    return path


def java_home(java: Path) -> Path:
    """A folder whose `bin/java` starts with Spark's flags, also where the Java lacks a module that they name."""
    home = java.resolve().parent.parent
    if (home / "jmods" / "jdk.incubator.vector.jmod").exists() or _has_vector(home):
        return home
    shim = cache_folder() / f"java-for-spark-{pyspark.__version__}" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_name(f"java.{os.getpid()}")
    fresh.write_text(_JAVA.format(java=str(java.resolve())))
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    fresh.rename(shim)
    return shim.parent.parent


def _has_vector(home: Path) -> bool:
    """What the `release` file of a Java says of its modules."""
    release = home / "release"
    return release.is_file() and "jdk.incubator.vector" in release.read_text(errors="replace")
