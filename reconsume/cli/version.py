"""`reconsume --version`: what a report of a problem has to name."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import confluent_kafka

from reconsume import __version__

__all__ = ["versions"]


def versions() -> str:
    """One line: reconsume, Python, both Kafka clients, pyspark."""
    parts = [
        f"Python {platform.python_version()}",
        f"confluent-kafka {confluent_kafka.version()}",
        f"librdkafka {confluent_kafka.libversion()[0]}",
        _pyspark(),
    ]
    return f"reconsume {__version__} ({', '.join(parts)})"


def _pyspark() -> str:
    try:
        return f"pyspark {version('pyspark')}"
    except PackageNotFoundError:
        return "without pyspark"
