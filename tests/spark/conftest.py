"""One Spark for the whole run: starting it takes seconds, its tests do not disturb each other."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from reconsume.cli.broker.java import find_java
from reconsume.cli.spark.session import connector_jars, local_session
from reconsume.spark_connectors.reconcile.records import records
from tests.spark.class_archive import archive_of_spark
from tests.spark.few_records import FEW_RECORDS
from tests.spark.histories.history import History, write_history
from tests.spark.histories.lived import lived, taken

__all__ = ["lived", "taken"]

_HERE: Final = Path(__file__).parent
_PY4J_LEAVES_SOCKETS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pyspark reads each result through a socket that it leaves to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            for warning in _PY4J_LEAVES_SOCKETS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session", autouse=True)
def classes_of_spark(short_lived_java: None) -> Iterator[None]:
    """Many tests start a Spark of their own: with the classes of an earlier one it takes half the time."""
    del short_lived_java
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", " ".join([os.environ["JDK_JAVA_OPTIONS"], *archive_of_spark()]))
        yield


@pytest.fixture(scope="session", autouse=True)
def copies_keep_their_times() -> Iterator[None]:
    """Copied records have the time of the first ones, which Kafka only takes as a producer's; it is the brokers'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PRODUCERS_TIME", -1)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real local Spark with the Kafka connector.

    `RECONSUME_TEST_SPARK` chooses another one: `connect` for Spark Connect, or a master such as
    `local-cluster[3,1,1024]`, three executors in JVMs of their own.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.driver.memory": "1g"} | FEW_RECORDS
    chosen = os.environ.get("RECONSUME_TEST_SPARK", "local[2]")
    with pytest.MonkeyPatch.context() as patch:
        # This JVM works for minutes: here the second compiler gives back more time than it takes.
        patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ['JDK_JAVA_OPTIONS']} -XX:TieredStopAtLevel=4")
        if chosen == "connect":
            session = _connected(settings)
        else:
            session = local_session(lambda _line: None, master=chosen, settings=settings)
    yield session
    session.stop()


def _connected(settings: dict[str, str]) -> SparkSession:
    """A session of a Spark Connect server on this machine, which ends with it; pyspark ships the server."""
    jars = connector_jars(find_java(), lambda _line: None).glob("*.jar")
    builder = SparkSession.builder.remote("local[2]")
    for key, value in {**settings, "spark.jars": ",".join(map(str, jars))}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        # The server takes all of them when it starts, and says of some that a session cannot change them.
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


@pytest.fixture(scope="session")
def history(bootstrap_servers: str) -> History:
    """Topics with known records, written by plain producers."""
    return write_history(bootstrap_servers)


class Shared:
    """The session of all tests, which a command must not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        pass


@pytest.fixture
def shared(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process take the session that is there; starting one takes long."""
    for command in ("replay", "reconcile"):
        monkeypatch.setattr(
            f"reconsume.cli.spark.{command}.open_session", lambda *_arguments, **_options: Shared(spark)
        )
