"""Kafka's settings of the shared file, for Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconsume.cli.spark.options import absolute, spark_kafka_options
from reconsume.delay_levels.errors import IllegalSetting

KEY = "-----BEGIN {}PRIVATE KEY-----\nMIIE\n-----END {}PRIVATE KEY-----\n"


def test_settings_of_other_processes_do_not_reach_spark() -> None:
    """Spark refuses some, Java the values of others, and the rest would change what a reconcile reads."""
    assert spark_kafka_options(
        {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "group.id": "orders",
            "isolation.level": "read_uncommitted",
            "linger.ms": "0.5",
            "metadata.broker.list": "elsewhere:9092",
            "partition.assignment.strategy": "cooperative-sticky",
            "statistics.interval.ms": "1000",
            "client.rack": "a",
            "security.protocol": "SSL",
        }
    ) == {"kafka.client.rack": "a", "kafka.security.protocol": "SSL"}


@pytest.mark.parametrize("kind", ["", "ENCRYPTED "])
def test_a_certificate_and_a_key_in_files_become_texts(tmp_path: Path, kind: str) -> None:
    (tmp_path / "own.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "key.pem").write_text(KEY.format(kind, kind))
    assert spark_kafka_options(
        {"ssl.certificate.location": f"{tmp_path}/own.pem", "ssl.key.location": f"{tmp_path}/key.pem"}
    ) == {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----\n",
        "kafka.ssl.keystore.key": KEY.format(kind, kind),
    }


@pytest.mark.parametrize("kind", ["RSA ", "EC "])
def test_a_key_that_java_cannot_read_is_refused_with_the_way_out(tmp_path: Path, kind: str) -> None:
    (tmp_path / "key.pem").write_text(KEY.format(kind, kind))
    with pytest.raises(
        IllegalSetting, match=rf"of the form {kind}?; convert it, use openssl pkcs8 -topk8 -in "
    ) as found:
        spark_kafka_options({"ssl.key.location": f"{tmp_path}/key.pem"})
    assert "MIIE" not in str(found.value)


def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(
        IllegalSetting, match=r"kafka\.ssl\.certificate\.location: .*none\.pem cannot be read: .*No such"
    ):
        spark_kafka_options({"ssl.certificate.location": f"{tmp_path}/none.pem"})


@pytest.mark.parametrize(
    ("folder", "read_as"),
    [
        ("dbfs:/mnt/ledger", "dbfs:/mnt/ledger"),
        ("hdfs:/ledger", "hdfs:/ledger"),
        ("file:///data/ledger", "file:/data/ledger"),
        ("s3a://audit/", "s3a://audit"),
        ("s3a://audit//x/../ledger/", "s3a://audit/ledger"),
        ("abfss://box@account.dfs.core.windows.net/a b%20/", "abfss://box@account.dfs.core.windows.net/a b%20"),
        ("/data//x/../ledger/", "/data/ledger"),
        ("a b%20", f"{Path.cwd()}/a b%20"),
    ],
)
def test_a_folder_is_named_as_hadoop_reads_it(folder: str, read_as: str) -> None:
    assert absolute(folder) == read_as
