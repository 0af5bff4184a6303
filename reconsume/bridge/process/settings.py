"""A strict tree of settings: a TOML or YAML file, the environment, the command line; unknown keys are refused."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from reconsume.bridge.process.environment import Words, read_environment
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import regular_expression
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

_OF_ONE_PROCESS: Final = ("sidecar", "subscriptions", "console")
"""One file may serve all processes of an installation; only `reconsume sidecar`, or `reconsume console`, reads these
parts."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TopicSettings(_Strict):
    """Settings of the topics that reconsume creates. They change no setting of an existing topic.

    But `reconsume topics apply` and `groups apply` add partitions to delay topics that have fewer than
    `delay_partitions` and `bulk_partitions` say. That cannot be undone. With more `delay_partitions`, former bulk
    partitions become normal ones: raise it while no group floods.

    `reconsume topics apply` and `groups apply` publish the settings that they were given in the GROUPS topic. Every
    process that creates a topic, such as a consumer or a scheduler worker, uses the published settings before its own.
    """

    delay_partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Partitions of each delay topic and of SEND_BACK for records by their keys; so many workers can share a topic."""
    bulk_partitions: Annotated[int, Field(ge=0, le=10_000)] = 2
    """Further partitions of each delay topic, for groups that flood it."""
    replication_factor: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Replicas of each topic; by default the cluster's, and at least 3 if there are 3 brokers."""
    retention_days: Annotated[float, Field(gt=0, le=100_000)] = 7
    """How long delay topics (at least twice their delay) and retry topics keep records, read or not."""
    max_message_bytes: Annotated[int, Field(ge=65_536)] | None = None
    """Largest record, in bytes; by default the brokers' limit plus room for reconsume's headers."""


class SchedulerSettings(_Strict):
    """One scheduler worker."""

    instance_id: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Identity, the same after a restart and unique among live workers; by default one that the machine keeps."""
    delivery: Literal["transactional", "at_least_once"] = "transactional"
    """`at_least_once` is for clusters without transactions: a crash may deliver a batch twice."""
    max_batch_records: Annotated[int, Field(ge=1, le=50_000)] = 5_000
    """Most records in a transaction, which also holds at most 4 MiB, and less on a slow link."""
    gather_ms: Annotated[int, Field(ge=0, le=1_000)] = 50
    """Longest wait for more due records to share a transaction; records wait only at 10 to 400 per second."""
    read_ahead_records: Annotated[int, Field(ge=1)] = 2_000
    """Most waiting records in memory for each partition; `DELAY.0s` may always have 16,000."""
    read_ahead_mib: Annotated[int, Field(ge=1)] = 64
    """Most memory for waiting records, all partitions together."""
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=15_000)] = 10_000
    """Time after which brokers abort a dead worker's transaction, if no other worker has."""
    static_membership: bool = True
    """A worker that was killed and is back within its session gets its partitions at once (`group.instance.id`)."""
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 6_000
    """Time after which a lost worker's partitions go to others; brokers require at least 6 s by default."""
    max_poll_interval_ms: Annotated[int, Field(ge=45_000, le=3_600_000)] = 60_000
    """Longest wait of a rebalance for a worker; a worker that hangs for longer is removed from the group."""

    @model_validator(mode="after")
    def _polls_within_the_session(self) -> Self:
        if self.max_poll_interval_ms < self.session_timeout_ms:
            raise ValueError(
                f"max_poll_interval_ms ({self.max_poll_interval_ms}) must be session_timeout_ms "
                f"({self.session_timeout_ms}) or more"
            )
        return self


class ManagementSettings(_Strict):
    """`/metrics`, `/livez`, `/readyz` and `/loglevel`."""

    host: str = "127.0.0.1"
    """Address to listen on; in a container `::`, every address of IPv6 and IPv4."""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """By default 15082 for a scheduler worker, 15081 for a sidecar and 15084 for a console, or a free port if that one
    is taken; 0 takes a free port."""


class LoggingSettings(_Strict):
    """Logs of the commands; the library itself configures no logging."""

    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level that is logged; PUT /loglevel changes it in a running process."""
    format: Literal["console", "json"] = "console"
    """`console` writes lines for people, `json` one JSON object in each line."""


_PROTOCOL: Final = re.compile("^(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://", re.IGNORECASE)
"""librdkafka allows these prefixes of an address."""
_LAST_PORT: Final = 65_535
SERVERS: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""librdkafka's names for the addresses of the brokers."""


def check_servers(addresses: str) -> None:
    """Refuse illegal addresses: librdkafka would retry them without an end, and takes port 99999 for 34463.

    Raises:
        IllegalSetting: the list is empty, or an address is not `host:port`.
    """
    servers = [one.strip() for one in addresses.split(",") if one.strip()]
    if not servers:
        raise IllegalSetting("the list is empty; write host:port, comma-separated")
    for one in servers:
        host, colon, port = _PROTOCOL.sub("", one).rpartition(":")
        has_port = colon and (":" not in host or host.endswith("]"))
        is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _LAST_PORT
        if re.search(r"[\s/]", host + port) or (has_port and not (host and is_port)):
            raise IllegalSetting(f"{one!r} must be host:port, with a port from 1 to {_LAST_PORT}")


class Settings(_Strict):
    """All settings of a process."""

    bootstrap_servers: str = "localhost:9092"
    """`host:port`, comma-separated."""
    kafka: dict[str, SecretStr] = {}
    """librdkafka's own settings, passed through to every client."""
    topic_prefix: str = "reconsume."
    """Prefix of all topics of the installation."""
    message_delay_level: str | None = None
    """Level table of this process alone; by default the one in the GROUPS topic."""
    auto_create_subscription_group: bool | None = None
    """Whether unknown groups are served with defaults (RocketMQ: BR-01, BR-02); by default as in the GROUPS topic."""
    allowed_real_topics: Words = []
    """Regular expressions of the topics to which delayed messages may be delivered; none by default."""
    topics: TopicSettings = TopicSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    management: ManagementSettings = ManagementSettings()
    logging: LoggingSettings = LoggingSettings()

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers_are_addresses(cls, value: str) -> str:
        check_servers(value)
        return value

    @field_validator("kafka", mode="before")
    @classmethod
    def _kafka_values_are_text(cls, value: Any) -> Any:
        """Convert numbers and booleans of TOML to text, which librdkafka requires."""
        if not isinstance(value, Mapping):
            return value
        return {key: _as_text(one) for key, one in value.items()}

    @model_validator(mode="after")
    def _servers_are_set_once(self) -> Self:
        for name in SERVERS & self.kafka.keys():
            if self.kafka[name].get_secret_value() != self.bootstrap_servers:
                raise IllegalSetting(f"kafka has {name}, which has no effect there; set bootstrap_servers")
        return self

    @field_validator("topic_prefix")
    @classmethod
    def _prefix_is_legal(cls, value: str) -> str:
        TopicNames(value)
        return value

    @field_validator("message_delay_level")
    @classmethod
    def _table_is_legal(cls, value: str | None) -> str | None:
        if value is not None:
            DelayLevels.parse(value)
        return value

    @field_validator("allowed_real_topics")
    @classmethod
    def _patterns_are_legal(cls, value: list[str]) -> list[str]:
        for pattern in value:
            regular_expression(pattern, "pattern")
        return value

    @property
    def names(self) -> TopicNames:
        """The topics of this installation."""
        return TopicNames(self.topic_prefix)

    @property
    def own_table(self) -> DelayLevels | None:
        """The level table of this process alone, if it has one."""
        return None if self.message_delay_level is None else DelayLevels.parse(self.message_delay_level)

    def client_settings(self) -> dict[str, Any]:
        """Return librdkafka settings for any client: the pass-through ones and the bootstrap servers, in clear text."""
        settings = {key: value.get_secret_value() for key, value in self.kafka.items()}
        return settings | {"bootstrap.servers": self.bootstrap_servers}


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


S = TypeVar("S", bound=Settings)


def load_settings(
    kind: type[S],
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> S:
    """Read the settings; the command line overrides the environment, the environment overrides the file.

    Args:
        kind: the class of the process's settings.
        file: TOML, or YAML by its suffix, nested like `Settings`; `kafka` has librdkafka's names.
        environment: None uses that of the process.
        overrides: values of the command line, nested the same way; None values are ignored.

    Raises:
        IllegalSetting: the message names every wrong setting, its source, and the allowed values, without secrets.
    """
    variables = os.environ if environment is None else environment
    layers = (
        (f"file {file}", _read_file(file) if file is not None else {}),
        ("environment", read_environment(variables)),
        # An empty section would replace one of a wrong type, which must be refused.
        ("command line", {name: one for name, one in _without_none(overrides or {}).items() if one != {}}),
    )
    merged: dict[str, Any] = {}
    for _, layer in layers:
        merged = _merge(merged, layer)
    known = {key: value for key, value in merged.items() if key in kind.model_fields or key not in _OF_ONE_PROCESS}
    try:
        return kind(**known)
    except ValidationError as error:
        raise IllegalSetting(_explain(error, layers, kind)) from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise IllegalSetting(
            f"the settings file {file} cannot be read: {why}; name another one with --config"
        ) from None
    if file.suffix in (".yaml", ".yml"):
        return _read_yaml(file, text)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise IllegalSetting(f"the settings file {file} is not TOML: {error}") from None


def _read_yaml(file: Path, text: str) -> dict[str, Any]:
    try:
        # Here, because only a YAML file needs PyYAML.
        from reconsume.bridge.process.yaml_text import parse_yaml  # noqa: PLC0415
    except ImportError:
        raise IllegalSetting(
            f"the settings file {file} is YAML, which needs PyYAML: pip install '.[sidecar]' in the checkout, "
            "or write TOML"
        ) from None
    try:
        found = parse_yaml(text)
        if isinstance(found, dict):
            # A section with only comments is null, and so is an empty file.
            return _without_none(found)
    except (ValueError, RecursionError) as error:
        raise IllegalSetting(f"the settings file {file} is not YAML: {error}") from None
    if found is not None:
        raise IllegalSetting(
            f"the settings file {file} must hold settings by name, as in: bootstrap_servers: kafka:9092"
        )
    return {}


def _without_none(layer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in layer.items()
        if value is not None
    }


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _explain(error: ValidationError, layers: tuple[tuple[str, Mapping[str, Any]], ...], kind: type[Settings]) -> str:
    lines = []
    for problem in error.errors(include_input=False, include_url=False):
        path = [str(part) for part in problem["loc"]]
        source = next((name for name, layer in reversed(layers) if _holds(layer, path)), "default")
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = f"unknown setting; known here: {', '.join(_known(path, kind))}"
        lines.append(f"setting {'.'.join(path)} ({source}): {message}")
    return "\n".join(lines)


def _holds(layer: Any, path: list[str]) -> bool:
    for part in path:
        if isinstance(layer, list):  # an element of a list; lists are not merged, each layer replaces the whole list
            layer = dict(zip(map(str, range(len(layer))), layer, strict=True))
        if not isinstance(layer, Mapping) or part not in layer:
            return False
        layer = layer[part]
    return True


def _known(path: list[str], kind: type[Settings]) -> list[str]:
    model: Any = kind
    for part in path[:-1]:
        if part.isdecimal():
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            return []
        inner = [one for one in get_args(field.annotation) if hasattr(one, "model_fields")]
        model = inner[0] if inner else field.annotation
    return sorted(model.model_fields)
