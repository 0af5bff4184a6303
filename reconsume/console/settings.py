"""Settings of `reconsume console`: those of every process, and `console`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from reconsume.bridge.http.listening import read_token
from reconsume.bridge.process.environment import Words
from reconsume.bridge.process.ports import CONSOLE_PAGES
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.dead_letter_index.causes import CauseLabels


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ConsoleListenSettings(_Strict):
    """Where the pages are served."""

    host: str = "127.0.0.1"
    """Address of the pages; any address beyond loopback needs a token."""
    port: Annotated[int, Field(ge=0, le=65_535)] = CONSOLE_PAGES
    """0 takes a free one."""


class ConsoleSettings(_Strict):
    """Read by `reconsume console` alone."""

    listen: ConsoleListenSettings = ConsoleListenSettings()
    token: SecretStr | None = None
    """What browsers must show, as password of HTTP Basic with any user name; `RECONSUME_CONSOLE__TOKEN_FILE` names a
    file that holds it."""
    token_file: Path | None = None
    """The same, from a settings file."""
    allowed_hosts: Words = []
    """Further names, without a port, by which browsers may ask for a console that listens on this machine alone: those
    of a proxy before it. `localhost` and the loopback addresses always may."""
    read_only: bool = False
    """Disable resending from the pages."""
    hide_values: bool = False
    """Show only the sizes of keys, values and the users' headers."""
    index_folder: Path | None = None
    """Folder of the index of dead letters, a cache that is filled from Kafka again when it is lost. It holds keys,
    headers and causes, no values. None takes the user's cache folder."""
    index_mib: Annotated[int, Field(ge=16)] = 1_024
    """Largest size of the index; a dead letter takes about 400 bytes."""
    cause_labels: dict[str, str] = {}
    """Labels of causes by regular expressions; the first that is found in class and text counts. Other causes are
    labelled by their class, and their text without ids, numbers and host names."""

    @field_validator("cause_labels")
    @classmethod
    def _labels_are_legal(cls, value: dict[str, str]) -> dict[str, str]:
        CauseLabels(value)
        return value

    @model_validator(mode="after")
    def _token_is_one(self) -> Self:
        if self.token is not None and self.token_file is not None:
            raise IllegalSetting("token and token_file are both set; keep one of them")
        return self

    def read_token(self) -> str | None:
        """The token that browsers must show; None if the pages may be looked at without one.

        Raises:
            IllegalSetting: it cannot be read, is too short, or is missing although other machines can reach the pages.
        """
        return read_token("console", self.listen.host, self.token, self.token_file)


class ConsoleProcessSettings(Settings):
    """All settings of a console process."""

    console: ConsoleSettings = ConsoleSettings()
