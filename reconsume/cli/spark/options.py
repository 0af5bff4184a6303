"""What `--spark-option` and the settings say to Spark and to its Kafka source."""

from __future__ import annotations

from collections.abc import Sequence

from reconsume.bridge.process.settings import Settings
from reconsume.cli.spark.kafka_options import spark_kafka_options
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["spark_options"]


def spark_options(settings: Settings, texts: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of the session, and options of the Kafka source.

    Args:
        settings: with librdkafka's settings, which are translated.
        texts: `KEY=VALUE`; a key with `spark.` is the session's.

    Raises:
        IllegalSetting: no `=`, or a setting that Java's client has no counterpart for.
    """
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise IllegalSetting(f"--spark-option {text!r}: write KEY=VALUE, such as spark.driver.memory=4g")
        pairs[key] = value
    kafka = spark_kafka_options({name: value.get_secret_value() for name, value in settings.kafka.items()})
    kafka |= {name: value for name, value in pairs.items() if not name.startswith("spark.")}
    return {name: value for name, value in pairs.items() if name.startswith("spark.")}, kafka
