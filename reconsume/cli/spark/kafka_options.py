"""librdkafka's settings as Spark's Kafka source and sink take them: the Java client's, with `kafka.` before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["spark_kafka_options"]

_RENAMED: Final = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_FILES: Final = {"ssl.ca.location": "ssl.truststore.location", "ssl.keystore.location": "ssl.keystore.location"}
_SPLIT_FILES: Final = ("ssl.certificate.location", "ssl.key.location")
_LOGIN: Final = ("sasl.username", "sasl.password")
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def spark_kafka_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Options for Spark of settings for librdkafka; names that both have are passed through.

    Raises:
        IllegalSetting: a setting has no counterpart: a login of another kind, or a certificate and a key in files.
    """
    options = {}
    for name, value in settings.items():
        if name in _SPLIT_FILES:
            raise IllegalSetting(
                f"-X {name}: Java reads certificate and key from one PEM file; "
                "put both into one and say --spark-option kafka.ssl.keystore.type=PEM "
                "--spark-option kafka.ssl.keystore.location=FILE"
            )
        if name in _FILES:
            options[_FILES[name]] = value
            if name == "ssl.ca.location":
                options["ssl.truststore.type"] = "PEM"
        elif name not in _LOGIN:
            options[_RENAMED.get(name, name)] = value
    if "ssl.truststore.certificates" in options:
        options["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.key" in options:
        options["ssl.keystore.type"] = "PEM"
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        options["ssl.endpoint.identification.algorithm"] = ""
    if any(name in settings for name in _LOGIN):
        options["sasl.jaas.config"] = _login(settings, options.get("sasl.mechanism", "GSSAPI"))
    return {"kafka." + name: value for name, value in options.items()}


def _login(settings: Mapping[str, str], mechanism: str) -> str:
    module = _MODULES.get(mechanism.upper())
    if module is None:
        raise IllegalSetting(
            f"-X sasl.username: for Spark it is known how to log in with {', '.join(_MODULES)}, not with {mechanism}; "
            "say --spark-option kafka.sasl.jaas.config=…"
        )
    user, password = (_quoted(settings.get(name, "")) for name in _LOGIN)
    return f"{module} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
