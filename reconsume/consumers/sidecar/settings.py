"""Settings of `reconsume sidecar`: those of every process, and `sidecar`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from reconsume.bridge.listening import read_token
from reconsume.bridge.ports import SIDECAR_API
from reconsume.bridge.settings import Settings
from reconsume.consumers.sidecar.push.settings import ErrorTypes, PushSettings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.names import check_group

__all__ = ["LimitSettings", "ListenSettings", "ProcessSettings", "SidecarSettings", "TlsSettings"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListenSettings(_Strict):
    """Where the API is served."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = SIDECAR_API
    """0 takes a free one."""


class TlsSettings(_Strict):
    """PEM files; they are read at the start."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """Whoever calls must show a certificate of this authority."""


class LimitSettings(_Strict):
    """What the API takes; beyond it answers 413, 431 or 429."""

    body_mib: Annotated[float, Field(gt=0)] = 16
    header_kib: Annotated[int, Field(ge=1)] = 32
    """Request line and headers together."""
    requests_per_second: Annotated[float, Field(gt=0)] | None = None
    """None sets no rate."""
    records_in_flight: Annotated[int, Field(ge=1)] = 10_000
    """So many send-backs may wait for Kafka; a further one is answered 503."""


class SidecarSettings(_Strict):
    """The API of one sidecar.

    Attributes:
        groups: the groups that it serves, and whose retry topics it makes at its start; none: it serves every group.
        dead_letter_on: by group, the types of errors that are not worth a retry: a send-back with such an `error.type`
            and without a level is a dead letter at once.
        token: what callers must show; `RECONSUME_SIDECAR__TOKEN_FILE` names a file that holds it.
        token_file: the same, from a settings file.
        quiesce_from_network: whether `/quiesce` and `/drain` answer callers from other machines without the token,
            as the kubelet is one.
        answer_seconds: a call that Kafka has not acknowledged by then is answered 503; it may be made again.
        drain_seconds: so long a process that ends waits for what it has begun.
        remember_minutes: so long a call that comes again is known to have been carried out.
    """

    listen: ListenSettings = ListenSettings()
    groups: list[str] = []
    dead_letter_on: dict[str, ErrorTypes] = {}
    token: SecretStr | None = None
    token_file: Path | None = None
    tls: TlsSettings | None = None
    limits: LimitSettings = LimitSettings()
    quiesce_from_network: bool = False
    answer_seconds: Annotated[float, Field(gt=0)] = 10
    drain_seconds: Annotated[float, Field(ge=0)] = 25
    remember_minutes: Annotated[float, Field(ge=0, le=60)] = 5

    @field_validator("groups", mode="before")
    @classmethod
    def _groups_from_one_text(cls, value: object) -> object:
        """The environment has no lists: groups are parted by spaces there."""
        return value.split() if isinstance(value, str) else value

    @field_validator("groups")
    @classmethod
    def _groups_are_legal(cls, value: list[str]) -> list[str]:
        return [check_group(one) for one in value]

    @model_validator(mode="after")
    def _dead_letters_are_of_groups_that_are_served(self) -> Self:
        for group in self.dead_letter_on:
            if self.groups and group not in self.groups:
                raise IllegalSetting(
                    f"dead_letter_on names group {check_group(group)!r}, which is not among groups; add it there"
                )
        return self

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise IllegalSetting("token and token_file are both set; keep one of them")
        return self

    def read_token(self) -> str | None:
        """The token that callers must show; None if the API may be used without one.

        Raises:
            IllegalSetting: it cannot be read, is too short, or is missing although other machines can reach the API.
        """
        return read_token("sidecar", self.listen.host, self.token, self.token_file)


class ProcessSettings(Settings):
    """All settings of a sidecar process."""

    sidecar: SidecarSettings = SidecarSettings()
    subscriptions: tuple[PushSettings, ...] = ()
    """What is pushed to apps; nothing by default."""
