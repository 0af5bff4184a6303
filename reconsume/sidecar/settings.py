"""Settings of `reconsume sidecar`: those of every process, and `sidecar`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator

from reconsume.bridge.http.listening import read_token
from reconsume.bridge.process.environment import Words
from reconsume.bridge.process.ports import SIDECAR_API
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.names import check_group
from reconsume.sidecar.guarding.callers import ANYBODY, Caller, Callers
from reconsume.sidecar.guarding.shares import LARGEST_SHARE, call_bytes
from reconsume.sidecar.push.settings import ErrorTypes, PushSettings

_MIB: Final = 1024 * 1024
_MOST_MIB: Final = 1_048_576
_OfGroups = TypeVar("_OfGroups", bound=Iterable[str])


def _from_json(example: str) -> BeforeValidator:
    """Parse JSON: environment variables have no tables."""

    def from_json(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"this text is not JSON ({error}); write {example}") from None

    return BeforeValidator(from_json)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListenSettings(_Strict):
    """The address of the API."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = SIDECAR_API
    """0 picks a free port."""


class TlsSettings(_Strict):
    """PEM files, read at the start."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """Callers must show a certificate of this authority."""


class LimitSettings(_Strict):
    """The limits of the API; beyond them it answers 413, 431 or 429."""

    body_mib: Annotated[float, Field(gt=0, le=_MOST_MIB)] = 16
    header_kib: Annotated[int, Field(ge=1)] = 32
    """Request line and headers together."""
    requests_per_second: Annotated[float, Field(ge=0.001, le=1_000_000)] | None = None
    """None for no limit."""
    records_in_flight: Annotated[int, Field(ge=1)] = 10_000
    """The maximum of send-backs that wait for Kafka; further ones get a 503."""
    connections: Annotated[int, Field(ge=1)] = 512
    """The maximum of open connections; a further one closes the connection that has been idle for longest."""
    memory_mib: Annotated[float, Field(gt=0, le=_MOST_MIB)] = 128
    """For request bodies, each counted four times, and send-backs that wait for Kafka; beyond it a 503."""
    read_at_start_mib: Annotated[float, Field(gt=0, le=_MOST_MIB)] = 256
    """How much of the delay topics is read at the start, the newest first, to recognise repeated calls."""

    @property
    def body_bytes(self) -> int:
        """Return `body_mib` in bytes."""
        return int(self.body_mib * _MIB)

    @property
    def memory_bytes(self) -> int:
        """Return `memory_mib` in bytes."""
        return int(self.memory_mib * _MIB)

    @property
    def read_at_start_bytes(self) -> int:
        """Return `read_at_start_mib` in bytes."""
        return int(self.read_at_start_mib * _MIB)

    @model_validator(mode="after")
    def _the_largest_body_has_room(self) -> Self:
        needed = call_bytes(self.body_bytes) / _MIB / LARGEST_SHARE
        if self.memory_mib < needed:
            raise IllegalSetting(
                f"memory_mib {self.memory_mib:g} has no room for a body of body_mib {self.body_mib:g} and its records; "
                f"set it to {math.ceil(needed)} or more, or body_mib to less"
            )
        return self


class CallerSettings(_Strict):
    """One caller of a shared sidecar: a token and what it allows.

    Groups and topics are names, or prefixes that end with `*`.
    """

    token: SecretStr | None = None
    token_file: Path | None = None
    """Holds the token, at least 16 characters; read at the start."""
    groups: list[str] = []
    topics: list[str] = []
    """Topics whose records it sends back, and that it sends messages to; retry topics of its groups are included."""

    @field_validator("groups", "topics")
    @classmethod
    def _stars_are_at_the_end(cls, value: list[str]) -> list[str]:
        for one in value:
            if not one or "*" in one[:-1]:
                raise IllegalSetting(f"{one!r} must be a name, or the beginning of a name followed by *")
        return value

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if (self.token is None) == (self.token_file is None):
            raise IllegalSetting("a caller needs exactly one token; set token_file or token")
        return self


class SidecarSettings(_Strict):
    """The API of one sidecar.

    Attributes:
        groups: the groups that it serves, and whose retry topics it creates at its start; empty serves every group.
        callers: callers with limited access, by name; in addition to `token`, which allows everything.
        dead_letter_on: by group, the types of errors that are not worth a retry: a send-back with such an `error.type`
            and without a level is a dead letter at once. Other groups than those served may be named: the pods of
            several groups share one table.
        token: the token that callers must send; `RECONSUME_SIDECAR__TOKEN_FILE` names a file that holds it.
        token_file: the same, from a settings file.
        quiesce_from_network: whether `/quiesce` and `/drain` answer callers from other machines without the token,
            as the kubelet is one.
        answer_seconds: a call without Kafka's acknowledgement by then gets a 503; repeat it.
        drain_seconds: how long a stopping process waits for its running work.
        remember_minutes: how long a repeated call is recognised.
    """

    listen: ListenSettings = ListenSettings()
    groups: Words = []
    callers: dict[str, CallerSettings] = {}
    dead_letter_on: Annotated[dict[str, ErrorTypes], _from_json('a table such as {"departures": ["ValueError"]}')] = {}
    token: SecretStr | None = None
    token_file: Path | None = None
    tls: TlsSettings | None = None
    limits: LimitSettings = LimitSettings()
    quiesce_from_network: bool = False
    answer_seconds: Annotated[float, Field(gt=0, le=86_400)] = 10
    drain_seconds: Annotated[float, Field(ge=0, le=86_400)] = 25
    remember_minutes: Annotated[float, Field(ge=0, le=60)] = 5

    @field_validator("groups", "dead_letter_on")
    @classmethod
    def _groups_are_legal(cls, value: _OfGroups) -> _OfGroups:
        for group in value:
            check_group(group)
        return value

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise IllegalSetting("token and token_file are both set; keep one of them")
        return self

    def read_token(self) -> str | None:
        """Return the token that allows everything; None if it is not set.

        Raises:
            IllegalSetting: the token is unreadable, too short, or missing although other machines can reach the API.
        """
        if self.callers and self.token is None and self.token_file is None:
            return None
        return read_token("sidecar", self.listen.host, self.token, self.token_file)

    def read_callers(self) -> Callers:
        """Return the callers of the API.

        Raises:
            IllegalSetting: as `read_token`, or two callers have the same token.
        """
        everything = self.read_token()
        found = {} if everything is None else {everything: ANYBODY}
        for name, one in self.callers.items():
            token = read_token(f"sidecar.callers.{name}", self.listen.host, one.token, one.token_file) or ""
            if token in found:
                raise IllegalSetting(
                    f"setting sidecar.callers.{name}: another caller has the same token; make a new one"
                )
            found[token] = Caller(name, one.groups, one.topics)
        return Callers(found)


class ProcessSettings(Settings):
    """All settings of a sidecar process."""

    sidecar: SidecarSettings = SidecarSettings()
    subscriptions: Annotated[
        tuple[PushSettings, ...], _from_json('a list such as [{"group": "departures", "topics": ["flights"]}]')
    ] = ()
    """The apps that messages are pushed to; none by default."""

    @field_validator("subscriptions", mode="before")
    @classmethod
    def _there_may_be_several(cls, value: object) -> object:
        if isinstance(value, Mapping):
            raise IllegalSetting("subscriptions are a list; write [[subscriptions]] in TOML, or - before each in YAML")
        return value

    @field_validator("subscriptions")
    @classmethod
    def _each_group_has_one(cls, value: tuple[PushSettings, ...]) -> tuple[PushSettings, ...]:
        groups = [one.group for one in value]
        for group in groups:
            if groups.count(group) > 1:
                raise IllegalSetting(
                    f"group {group!r} has several subscriptions, whose retries would reach any of their apps; name all "
                    "topics in one subscription, or give each its own group"
                )
        return value
