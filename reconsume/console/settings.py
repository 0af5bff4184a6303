"""Settings of `reconsume console`: those of every process, and `console`."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from reconsume.bridge.http.listening import is_loopback, read_token
from reconsume.bridge.process.environment import Words
from reconsume.bridge.process.ports import CONSOLE_PAGES
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.dead_letter_index.causes import CauseLabels


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ConsoleListenSettings(_Strict):
    """The address of the pages."""

    host: str = "127.0.0.1"
    """Address of the pages; any address beyond loopback needs a sign-in."""
    port: Annotated[int, Field(ge=0, le=65_535)] = CONSOLE_PAGES
    """Port of the pages; 0 takes a free port."""


class AccessSettings(_Strict):
    """A role for some people."""

    role: Literal["viewer", "operator", "admin"]
    """`viewer` looks, `operator` also sends again, resolves and runs jobs, `admin` also releases from the
    quarantine."""
    people: Words = []
    """Names of people who have signed in; `*` means all of them."""
    teams: Words = []
    """Teams, as the proxy or the provider names them."""
    groups: Annotated[Words, Field(min_length=1)] = ["*"]
    """Consumer groups of the role; `*` in a name matches any text."""


class ProxySettings(_Strict):
    """A proxy that has signed people in."""

    addresses: Annotated[Words, Field(min_length=1)]
    """Addresses or networks of proxies, such as `10.1.0.0/16`; headers from anywhere else are ignored."""
    user_header: str = "x-forwarded-user"
    """The header with the name of the person; the proxy must remove it from what browsers send."""
    teams_header: str = "x-forwarded-groups"
    """The header with their teams, comma-separated."""

    @field_validator("addresses")
    @classmethod
    def _addresses_are_legal(cls, value: list[str]) -> list[str]:
        for one in value:
            try:
                ipaddress.ip_network(one, strict=False)
            except ValueError as error:
                raise IllegalSetting(
                    f"console.proxy.addresses: {one!r} is not an address or network ({error})"
                ) from None
        return value

    @field_validator("user_header", "teams_header")
    @classmethod
    def _in_lower_case(cls, value: str) -> str:
        return value.lower()


class OidcSettings(_Strict):
    """An OpenID Connect provider."""

    issuer: str
    """Address of the provider, which serves `/.well-known/openid-configuration` below it."""
    client_id: str
    """The console's client id at the provider."""
    client_secret: SecretStr | None = None
    """The console's client secret; None for a public client."""
    client_secret_file: Path | None = None
    """A file that holds the secret."""
    console_url: str
    """The address of the console as browsers see it, such as `https://console.example.com`; the provider must allow
    `/sign-in/callback` below it."""
    scopes: Words = ["openid", "profile", "email"]
    """Scopes to request."""
    name_claim: str = "preferred_username"
    """The claim with the name of the person. Use one that people cannot change, such as `sub`, if the provider lets
    them change their user names. For `email`, only verified addresses count."""
    teams_claim: str = "groups"
    """The claim with their teams."""

    @field_validator("issuer", "console_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise IllegalSetting(f"console.oidc: {value!r} must begin with https://")
        return value.rstrip("/")


class ConsoleSettings(_Strict):
    """Settings that only `reconsume console` reads."""

    listen: ConsoleListenSettings = ConsoleListenSettings()
    token: SecretStr | None = None
    """Shared token, which browsers send as the password of HTTP Basic, with any user name;
    `RECONSUME_CONSOLE__TOKEN_FILE` names a file with it."""
    token_file: Path | None = None
    """The same, from a settings file."""
    tokens: SecretStr | None = None
    """Tokens of people: a line is a name, a space and a token of at least 16 characters;
    `RECONSUME_CONSOLE__TOKENS_FILE` names a file that holds them."""
    tokens_file: Path | None = None
    """The same, from a settings file."""
    proxy: ProxySettings | None = None
    """A proxy that has signed people in: `{addresses = ["10.1.0.0/16"]}`, with `user_header` (`x-forwarded-user`) and
    `teams_header` (`x-forwarded-groups`)."""
    oidc: OidcSettings | None = None
    """An OpenID Connect provider: `issuer`, `client_id`, `client_secret_file`, `console_url`, and `scopes`,
    `name_claim`, `teams_claim`."""
    access: list[AccessSettings] = []
    """Roles of people: `{role = "operator", people = ["anna"], teams = ["sre"], groups = ["billing-*"]}`. Without it,
    people with tokens are admins. With `proxy` or `oidc` it is required."""
    session_key: SecretStr | None = None
    """Key of at least 32 characters that signs forms and sessions; several consoles behind one name need the same key.
    By default the process makes one for its lifetime. `RECONSUME_CONSOLE__SESSION_KEY_FILE` names a file with it."""
    session_key_file: Path | None = None
    """The same, from a settings file."""
    session_hours: Annotated[float, Field(gt=0, le=720)] = 10
    """How long a sign-in with `oidc` lasts."""
    allowed_hosts: Words = []
    """Further host names, without a port, of a console that listens on loopback only: those of a proxy before it.
    `localhost` and loopback addresses are always allowed."""
    read_only: bool = False
    """Disable all changes from the pages and the API."""
    hide_values: bool = False
    """Show only the sizes of keys, values and the users' headers."""
    hide_values_from_viewers: bool = True
    """The same for people who are only viewers of a group."""
    schema_registry: SecretStr | None = None
    """URL of a Confluent Schema Registry for decoding keys and values; it may contain a user and a password. Needs
    the extra `schemas`. `RECONSUME_CONSOLE__SCHEMA_REGISTRY_FILE` names a file that holds it."""
    reports_folder: Path | None = None
    """Folder of the pages that `--report` of `reconsume reconcile` writes; by default the console shows no reports."""
    index_folder: Path | None = None
    """Folder of the index of dead letters, a cache that is refilled from Kafka after a loss. It holds keys, headers and
    causes, but no values. By default it is in the user's cache folder."""
    index_mib: Annotated[int, Field(ge=16)] = 1_024
    """Largest size of the index; a dead letter takes about 400 bytes."""
    cause_labels: dict[str, str] = {}
    """Labels of causes by regular expressions; the first that matches class or text counts. Other causes get a label
    from their class, and their text without ids, numbers and host names."""

    @field_validator("token_file", "tokens_file", "session_key_file", "reports_folder", "index_folder", mode="before")
    @classmethod
    def _paths_are_names(cls, value: object) -> object:
        """Refuse an empty text, which would be the working directory."""
        if value == "":
            raise IllegalSetting("the path is empty; name a file or folder, or leave the setting out")
        return value

    @field_validator("cause_labels")
    @classmethod
    def _labels_are_legal(cls, value: dict[str, str]) -> dict[str, str]:
        CauseLabels(value)
        return value

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise IllegalSetting("token and token_file are both set; keep one of them")
        if (self.proxy or self.oidc) and not self.access:
            raise IllegalSetting(
                "console.proxy or console.oidc is set, and console.access is not: say who may do what, such as "
                'access = [{role = "viewer", people = ["*"]}]'
            )
        return self

    def read_token(self) -> str | None:
        """Return the token that browsers must send; None if none is needed.

        Raises:
            IllegalSetting: the token is unreadable, too short, or missing although other machines can reach the pages.
        """
        has_other_sign_in = bool(self.tokens or self.tokens_file or self.proxy or self.oidc)
        return read_token(
            "console", "127.0.0.1" if has_other_sign_in else self.listen.host, self.token, self.token_file
        )


class ConsoleProcessSettings(Settings):
    """All settings of a console process."""

    console: ConsoleSettings = ConsoleSettings()
