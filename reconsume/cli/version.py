"""`reconsume --version`: what a report of a problem has to name."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from reconsume.operations.doctor.connection import versions_of

__all__ = ["versions"]


def versions() -> str:
    """One line: reconsume, Python, both Kafka clients, pyspark."""
    found = versions_of(None)
    clients = ", ".join(f"{name} {found[name]}" for name in ("confluent-kafka", "librdkafka"))
    return f"reconsume {found['reconsume']} (Python {found['python']}, {clients}, {_pyspark()})"


def _pyspark() -> str:
    try:
        return f"pyspark {version('pyspark')}"
    except PackageNotFoundError:
        return "without pyspark"
