"""Options about Spark and its Kafka source."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import pair

_RENAMED: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_FILES: Final = {"ssl.ca.location": "ssl.truststore.location", "ssl.keystore.location": "ssl.keystore.location"}
_PEM_FILES: Final = {
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_OLD_KEY: Final = re.compile(r"-----BEGIN (\w+) PRIVATE KEY-----")
_SHARED: Final = ("security.", "sasl.", "ssl.", "client.", "reconnect.backoff.", "socket.connection.setup.")
"""The beginnings of names that mean the same to librdkafka and Java. One file of settings serves all processes; of the
others Spark refuses some (`auto.offset.reset`), and Java the values of some (`partition.assignment.strategy`)."""
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
"""`dbfs:/x` and `s3a://x` are folders of a file system that only Spark sees."""
_LOGIN: Final = ("sasl.username", "sasl.password")
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class SparkChoice(NamedTuple):
    """Where Spark runs, and its options.

    Attributes:
        master: `local[n]`, or the master of a cluster; its driver runs here.
        remote: a Spark Connect server, which must have the connector; then master and settings are ignored.
        settings: settings of the session.
        kafka: options of the Kafka source.
    """

    master: str
    remote: str | None
    settings: dict[str, str]
    kafka: dict[str, str]

    @classmethod
    def of(cls, settings: Settings, master: str, remote: str | None, texts: Sequence[str]) -> Self:
        """Read the options of the command line.

        Args:
            settings: the settings, whose librdkafka part is translated.
            master: the value of `--master`.
            remote: the value of `--remote`.
            texts: the values of `--spark-option`, `KEY=VALUE`; a key with `spark.` is for the session.

        Raises:
            IllegalSetting: `=` is missing, or Java's client has no counterpart for a setting.
        """
        session: dict[str, str] = {}
        kafka = spark_kafka_options({name: value.get_secret_value() for name, value in settings.kafka.items()})
        for text in texts:
            key, value = pair("--spark-option", text, "KEY=VALUE, such as spark.driver.memory=4g")
            (session if key.startswith("spark.") else kafka)[key] = value
        return cls(master, remote, session, kafka)


def absolute(folder: str) -> str:
    """Return the absolute path, because Spark resolves relative ones in its own working folder; refuse an empty one."""
    if not folder.strip():
        raise IllegalSetting("the name of a folder is empty; check the variable that it comes from")
    # As Hadoop does, so that two spellings of a folder are equal.
    if uri := _URI.fullmatch(folder):
        return f"{uri[1]}:{posixpath.normpath(uri[2])}"
    return posixpath.normpath(Path(folder).absolute().as_posix())


def check_file(option: str, file: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it gets.

    Raises:
        IllegalSetting: the message names the option.
    """
    try:
        if file.is_dir():
            raise IllegalSetting(f"{option} {file} is a folder; name a file in it, such as report.html")
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        if is_new or file.is_file():  # opening and closing a pipe would end its reader
            file.open("ab").close()
        if is_new:
            file.unlink()
    except OSError as error:
        raise IllegalSetting(f"{option} {file}: cannot be written: {error.strerror}; name another file") from error


def check_folder(option: str, folder: str, spark: SparkChoice) -> None:
    """Refuse a folder of this machine that cannot be written, before the work whose result it gets.

    Raises:
        IllegalSetting: the message names the option.
    """
    path = absolute(folder)
    if spark.remote is not None or not spark.master.startswith("local") or not path.startswith("/"):
        return  # only Spark sees it
    try:
        is_new = not Path(path).exists()
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
        if is_new:
            Path(path).rmdir()
    except OSError as error:
        raise IllegalSetting(f"{option} {folder}: cannot be written: {error.strerror}; name another folder") from error


def spark_kafka_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate librdkafka's settings to Spark's Kafka source and sink: the Java client's, with `kafka.` before.

    Settings about anything but connections are left out; `--spark-option kafka.…` sets Java's own.

    Raises:
        IllegalSetting: a setting has no counterpart: a login of another kind, or a key that Java cannot read.
    """
    options = {}
    for name, value in settings.items():
        if name in _PEM_FILES:
            options[_PEM_FILES[name]] = _pem(name, value)
        elif name in _FILES:
            options[_FILES[name]] = value
            if name == "ssl.ca.location":
                options["ssl.truststore.type"] = "PEM"
        elif name not in _LOGIN and name.startswith(_SHARED):
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


def _pem(name: str, file: str) -> str:
    """Return the text of a PEM file; Java takes certificate and key as texts, or both from one file."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise IllegalSetting(f"setting kafka.{name}: {file} cannot be read: {error}") from None
    if (old := _OLD_KEY.search(text)) and old[1] != "ENCRYPTED":
        raise IllegalSetting(
            f"setting kafka.{name}: Java reads no key of the form {old[1]}; convert it, use "
            f"openssl pkcs8 -topk8 -in {file} -out NEW, with -nocrypt if it has no password"
        )
    return text


def _login(settings: Mapping[str, str], mechanism: str) -> str:
    module = _MODULES.get(mechanism.upper())
    if module is None:
        raise IllegalSetting(
            f"setting kafka.sasl.username: Spark's login with {mechanism} is not supported, only "
            f"{', '.join(_MODULES)}; "
            "pass --spark-option kafka.sasl.jaas.config=… instead"
        )
    user, password = (_quoted(settings.get(name, "")) for name in _LOGIN)
    return f"{module} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
