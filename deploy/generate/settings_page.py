"""The page of all settings, made from the models that check them."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from reconsume.bridge.process.settings import Settings
from reconsume.console.settings import ConsoleSettings

__all__ = ["settings_page"]

_HEAD: Final = """\
# Settings

<!-- made by `make docs` from reconsume/bridge/process/settings.py; do not edit -->

This page is a reference of all settings, for operators. Every command reads the file of `--config` (or
`RECONSUME_CONFIG`), then the environment, then the command line; a later one overrides an earlier one. Unknown settings
are refused; the error names them and the known ones.

```toml
bootstrap_servers = "kafka-1:9092,kafka-2:9092"
allowed_real_topics = ["orders\\\\..*"]       # topics that delayed messages may be for

[kafka]                                     # librdkafka's names, passed through to every client
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
"sasl.username" = "reconsume"

[scheduler]
max_batch_records = 5000
```
"""
_POLICY: Final = '{"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2}}'
_TAIL: Final = """\
## In the environment

A dot becomes two underscores: `RECONSUME_SCHEDULER__INSTANCE_ID`. librdkafka's settings are
`RECONSUME_KAFKA_SASL_PASSWORD` for `sasl.password`, `RECONSUME_KAFKA_LOG_LEVEL` for `log_level`. With `_FILE` at its
end a variable names a file that holds the value, as secrets are mounted:
`RECONSUME_KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka`. A process reads these files when it starts: restart it after a
change. Lists are separated by spaces, or are JSON, as tables are:
`RECONSUME_SUBSCRIPTIONS='[{"group": "departures", "topics": ["flights"]}]'`. reconsume ignores the variables that
Kubernetes sets for a Service with the name `reconsume`.

## Check settings

`reconsume config check --config reconsume.toml` names each mistake and exits with 2; it contacts no broker. `reconsume
config show` prints the settings in force, from file, environment and command line, with secrets masked. `reconsume
config schema` prints the JSON schema of the file. `--process sidecar` and `--process console` do the same for a sidecar
and a console.

## Groups and the level table

The settings of groups and the level table are records of the GROUPS topic, so that all processes use the same ones. Set
them with [a file](operate.md#groups-as-a-file), or with `reconsume groups set --delay-levels "1s 5s 10s"` and
`reconsume groups set departures --retry-max-times 3`. A group may have a retry policy of RocketMQ 5:

    {example}

New durations need new delay topics. `reconsume groups apply` creates them before it changes the groups. After
`reconsume groups set` run `reconsume topics apply` at once. A scheduler without the right to create delay topics, which
`reconsume topics acls` does not print, moves send-backs to a missing one to the quarantine. Release them afterwards.
"""
_BOUNDS: Final = {"Ge": "from {}", "Gt": "over {}", "Le": "to {}", "MinLen": "from {} characters", "MaxLen": "to {}"}


def settings_page() -> str:
    """Return `docs/settings.md`."""
    top = {name: one for name, one in Settings.model_fields.items() if not _is_section(one)}
    parts = [_HEAD, _table("All processes", None, top, "")]
    for name, field in Settings.model_fields.items():
        if _is_section(field):
            model: type[BaseModel] = field.annotation  # type: ignore[assignment]  # it is a section
            parts.append(_table(f"`[{name}]`", inspect.getdoc(model), model.model_fields, f"{name}."))
    parts.append(_table("`[console]`", ConsoleSettings.__doc__, ConsoleSettings.model_fields, "console."))
    example = f"reconsume groups set departures --retry-policy '{_POLICY}'"
    return "\n".join([*parts, _TAIL.replace("{example}", example)])


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _table(title: str, words: str | None, fields: dict[str, FieldInfo], prefix: str) -> str:
    rows = [row for name, field in fields.items() for row in _rows(prefix + name, field)]
    head = f"## {title}\n\n" + (f"{words}\n\n" if words else "")
    return head + "\n".join(["| setting | values | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _rows(path: str, field: FieldInfo) -> list[str]:
    """Return the rows of a section and of its sections."""
    if _is_section(field):
        inner: dict[str, FieldInfo] = field.annotation.model_fields  # type: ignore[union-attr]  # it is a section
        return [_row(f"{path}.{name}", one) for name, one in inner.items()]
    return [_row(path, field)]


def _row(path: str, field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    shown = (
        ""
        if default is None or default in ({}, [])
        else f"`{default if isinstance(default, str) else json.dumps(default)}`"
    )
    meaning = re.sub(r"\s+", " ", field.description or "").replace("|", "\\|")
    return f"| `{path}` | {_values(field)} | {shown} | {meaning} |"


def _values(field: FieldInfo) -> str:
    words = [_type(field.annotation)]
    words += [_BOUNDS[kind].format(_bound(one)) for one in field.metadata if (kind := type(one).__name__) in _BOUNDS]
    return ", ".join(word for word in words if word)


def _bound(constraint: Any) -> str:
    return f"{getattr(constraint, constraint.__slots__[0]):,}"


def _type(annotation: Any) -> str:
    names = {
        int: "integer",
        float: "number",
        str: "text",
        bool: "`true` or `false`",
        SecretStr: "text",
        Path: "text",
        type(None): "",
    }
    if annotation in names:
        return names[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is list:
        return "list"
    if get_origin(annotation) is dict:
        return "names and values"
    if all(isinstance(one, str) for one in arguments):
        return " or ".join(f"`{one}`" for one in arguments)
    bounds = [
        _BOUNDS[type(one).__name__].format(_bound(one))
        for part in arguments
        for one in getattr(next(iter(getattr(part, "__metadata__", ())), None), "metadata", ())
        if type(one).__name__ in _BOUNDS
    ]
    return ", ".join(word for word in [*(_type(_plain(one)) for one in arguments), *bounds] if word)


def _plain(annotation: Any) -> Any:
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
