"""One Spark for the whole run: starting it takes seconds, its tests do not disturb each other."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.spark.history import History, write_history
from tests.spark.lived import lived, taken

__all__ = ["lived", "taken"]

_HERE: Final = Path(__file__).parent
_PY4J_LEAVES_SOCKETS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pyspark reads each result through a socket that it leaves to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            for warning in _PY4J_LEAVES_SOCKETS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A real local Spark with the Kafka connector."""
    from reconsume.cli.spark.session import local_session  # noqa: PLC0415 - unit tests collect without it

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    session = local_session(lambda _line: None, master="local[2]", settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def history(bootstrap_servers: str) -> History:
    """Topics with known records, written by plain producers."""
    return write_history(bootstrap_servers)
