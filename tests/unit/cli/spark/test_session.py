"""The session that a command asks Spark for."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconsume.cli.spark import session
from reconsume.cli.spark.options import SparkChoice, spark_kafka_options

ZONE = "spark.sql.session.timeZone"


def asked(monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str]) -> dict[str, Any]:
    """The settings of a session for this master."""
    monkeypatch.setattr(SparkSession.builder, "_options", {})
    monkeypatch.setattr(session, "use_java", lambda: Path("java"))
    monkeypatch.setattr(session, "connector_jars", lambda *_: None)
    monkeypatch.setattr(session, "configure", lambda builder, **_: SimpleNamespace(getOrCreate=lambda: builder))
    builder: Any = session.open_session(lambda _: None, SparkChoice(master, None, settings, {}))
    return dict(builder._options)


@pytest.mark.parametrize("master", ["local[2]", "yarn"])
def test_no_key_of_a_client_is_in_sparks_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str) -> None:
    """Plans are in Spark's UI and in its event logs, with all options that match no pattern."""
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n")
    (tmp_path / "own.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    conf = {"ssl.certificate.location": f"{tmp_path}/own.pem", "ssl.key.location": f"{tmp_path}/key.pem"}
    (secret,) = [name for name, value in spark_kafka_options(conf).items() if "PRIVATE KEY" in value]
    assert re.search(asked(monkeypatch, master, {})["spark.sql.redaction.options.regex"], secret)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://cluster"])
def test_times_without_an_offset_are_in_utc_on_each_master(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    assert asked(monkeypatch, master, {})[ZONE] == "UTC"
    assert asked(monkeypatch, master, {ZONE: "Europe/Paris"})[ZONE] == "Europe/Paris"
