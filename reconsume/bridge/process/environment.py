"""Values from the environment: settings (`RECONSUME_*`, `RECONSUME_*_FILE` for secrets), and the cache folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from reconsume.delay_levels.errors import IllegalSetting

_PREFIX: Final = "RECONSUME_"
_KAFKA: Final = "KAFKA_"
_WITH_UNDERSCORE: Final = {name.replace("_", "."): name for name in ("log_level", "enabled_events")}
"""librdkafka separates words by dots. Only these two names with an underscore can be set by a text; the others are
functions and objects, such as `error_cb` and `ssl_ca` (CONFIGURATION.md of librdkafka 2.16)."""
_PATHS: Final = frozenset(f"KAFKA_SASL_OAUTHBEARER_ASSERTION_{name}_FILE" for name in ("PRIVATE_KEY", "JWT_TEMPLATE"))
"""librdkafka's settings that are paths themselves."""
_OTHER_USES: Final = frozenset(
    {
        "BUILD_TOOLS",
        "CONFIG",
        "CACHE_DIR",
        "CHAOS_SEED",
        "SCHEMA_REGISTRY_URL",
        "TEST_BOOTSTRAP",
        "TEST_FLIGHTS",
        "TEST_SPARK",
    }
)
"""Variables of the command line and the tests, which are not settings."""
_KUBERNETES_SERVICE: Final = re.compile(r"(.*_)?(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)")
"""Kubernetes sets variables such as RECONSUME_PORT=tcp://… for every Service of a namespace; a Service named reconsume
must not stop the program."""

Words = Annotated[list[str], BeforeValidator(lambda value: value.split() if isinstance(value, str) else value)]
"""Settings that are lists; in the environment their elements are separated by spaces."""


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the settings from the environment, nested as in the settings file.

    `RECONSUME_SCHEDULER__INSTANCE_ID` is `scheduler.instance_id`; `RECONSUME_KAFKA_SASL_PASSWORD` is librdkafka's
    `sasl.password`, and `RECONSUME_KAFKA_LOG_LEVEL` its `log_level`. A variable that ends with `_FILE` names a file
    that holds the value. A JSON list or object becomes a list or a table.

    Raises:
        IllegalSetting: an unreadable `_FILE`, or both forms of one variable.
    """
    settings: dict[str, Any] = {}
    for variable in sorted(environment):
        name = variable.removeprefix(_PREFIX)
        if name == variable or name in _OTHER_USES or _is_kubernetes_service(name, environment[variable]):
            continue
        if name.endswith("_FILE") and name not in _PATHS:
            name = name.removesuffix("_FILE")
            if _PREFIX + name in environment:
                raise IllegalSetting(f"{variable} and {_PREFIX + name} are both set; keep one of them")
            _put(settings, name, read_secret_file(variable, Path(environment[variable])))
        else:
            _put(settings, name, environment[variable], may_be_json=True)
    return settings


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a process that must not read its user's settings, such as those of the demo."""
    kept = {_PREFIX + name for name in _OTHER_USES - {"CONFIG"}}
    return {name: value for name, value in environment.items() if not name.startswith(_PREFIX) or name in kept}


def _is_kubernetes_service(name: str, value: str) -> bool:
    return (
        bool(_KUBERNETES_SERVICE.fullmatch(name))
        and "__" not in name
        and ("SERVICE" in name or value.startswith(("tcp://", "udp://")) or "_TCP" in name or "_UDP" in name)
    )


def read_secret_file(names: str, file: Path) -> str:
    """Return the text of a file that a setting or variable names, without byte-order mark and trailing line breaks.

    Raises:
        IllegalSetting: the file cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or f"{error}"
        raise IllegalSetting(f"{names} names a file that cannot be read: {file}: {why}") from None


def _put(settings: dict[str, Any], name: str, value: str, *, may_be_json: bool = False) -> None:
    if name.startswith(_KAFKA):
        dotted = name.removeprefix(_KAFKA).strip("_").lower().replace("_", ".")
        _part(settings, "kafka")[_WITH_UNDERSCORE.get(dotted, dotted)] = value
        return
    *parents, leaf = name.lower().split("__")
    for parent in parents:
        settings = _part(settings, parent)
    settings[leaf] = _structured(value) if may_be_json else value


def _structured(text: str) -> Any:
    """Return a list or object if the text is one in JSON; a regular expression such as `[a-z]+` is not."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _part(settings: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a table of settings within another one."""
    found = settings.setdefault(name, {})
    if not isinstance(found, dict):
        raise IllegalSetting(
            f"{_PREFIX}{name.upper()} and variables that begin with {_PREFIX}{name.upper()}_ are both set; "
            f"{name} is a table, so unset {_PREFIX}{name.upper()}"
        )
    return found


def cache_folder() -> Path:
    """Return `RECONSUME_CACHE_DIR`, else `reconsume` in the user's cache folder.

    Raises:
        IllegalSetting: the user has no home folder.
    """
    if own := os.environ.get("RECONSUME_CACHE_DIR"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "reconsume"
    except RuntimeError:  # no HOME and no passwd entry for the uid, as in some containers
        raise IllegalSetting(
            "this user has no home folder for a cache; set RECONSUME_CACHE_DIR to a folder that can be written"
        ) from None
