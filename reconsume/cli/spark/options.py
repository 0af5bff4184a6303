"""What the options of a command say of Spark and of its Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from reconsume.bridge.process.settings import Settings
from reconsume.cli.spark.kafka_options import spark_kafka_options
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["SparkChoice", "absolute"]


class SparkChoice(NamedTuple):
    """Where Spark runs, and with what.

    Attributes:
        master: `local[n]`, or of a cluster; its driver runs here.
        remote: a Spark Connect server, which must have the connector; then master and settings are not looked at.
        settings: of the session.
        kafka: options of the Kafka source.
    """

    master: str
    remote: str | None
    settings: dict[str, str]
    kafka: dict[str, str]

    @classmethod
    def of(cls, settings: Settings, master: str, remote: str | None, texts: Sequence[str]) -> Self:
        """From the command line.

        Args:
            settings: with librdkafka's settings, which are translated.
            master: of `--master`.
            remote: of `--remote`.
            texts: of `--spark-option`, `KEY=VALUE`; a key with `spark.` is the session's.

        Raises:
            IllegalSetting: no `=`, or a setting that Java's client has no counterpart for.
        """
        session: dict[str, str] = {}
        kafka = spark_kafka_options({name: value.get_secret_value() for name, value in settings.kafka.items()})
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals:
                raise IllegalSetting(f"--spark-option {text!r}: write KEY=VALUE, such as spark.driver.memory=4g")
            (session if key.startswith("spark.") else kafka)[key] = value
        return cls(master, remote, session, kafka)


def absolute(folder: str) -> str:
    """Spark would take a relative path for one of its own working folder."""
    return folder if "://" in folder else str(Path(folder).absolute())
