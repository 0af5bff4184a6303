"""`reconsume --version`: the versions to name in a bug report."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from reconsume.operations.doctor.connection import versions_of


def versions() -> str:
    """Return one line: reconsume, Python, both Kafka clients, pyspark."""
    found = versions_of(None)
    clients = ", ".join(f"{name} {found[name]}" for name in ("confluent-kafka", "librdkafka"))
    return f"reconsume {found['reconsume']} (Python {found['python']}, {clients}, {_pyspark()})"


def _pyspark() -> str:
    try:
        return f"pyspark {version('pyspark')}"
    except PackageNotFoundError:
        return "without pyspark"
