"""HTTP to the app: what every client does."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.answers.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http.http1_connection import BODY_LIMIT
from reconsume.sidecar.push.requests.cloud_events import parsed
from reconsume.sidecar.push.requests.message_headers import HttpHeaders
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import Profile, PushSettings

__all__ = ["AppClient", "Token", "answer_of", "base_of", "connect_seconds", "tls_of"]

_CONNECT_SECONDS: Final = 5.0


class AppClient(Protocol):
    """Asks the app; used in one event loop."""

    async def send(self, method: str, request: AppRequest, seconds: float) -> AppAnswer | NoAnswer:
        """The app's answer, or why there is none within so long; redirects are answers. Raises nothing.

        Once a status has come it is the answer, whatever becomes of the rest.
        """

    async def aclose(self) -> None:
        """Close its connections."""


class Token:
    """The text of a file, read again when the file changes; an unreadable one keeps what was read.

    Raises:
        IllegalSetting: it cannot be read, or no HTTP header could carry it.
    """

    def __init__(self, file: Path, profile: Profile) -> None:
        self._file = file
        self._dapr = profile is Profile.DAPR
        self._stamp: tuple[int, int] | None = None
        self._headers: HttpHeaders = []
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise IllegalSetting(f"token_file {file}: {error}") from None

    def headers(self) -> HttpHeaders:
        """For each request."""
        try:
            stat = self._file.stat()
            if (stat.st_mtime_ns, stat.st_size) != self._stamp:
                self._read()
        except (OSError, ValueError):
            pass  # a file that is just being replaced is read at the next request
        return self._headers

    def _read(self) -> None:
        stat = self._file.stat()
        token = self._file.read_text(encoding="ascii").strip()
        if not token or not all("!" <= one <= "~" for one in token):
            raise ValueError("must hold one token of printable ASCII")
        self._headers = [("dapr-api-token", token)] if self._dapr else [("authorization", f"Bearer {token}")]
        self._stamp = (stat.st_mtime_ns, stat.st_size)


def answer_of(status: int, headers: Mapping[str, str], body: bytes, cut_off: bool = False) -> AppAnswer:
    """An answer; a body that is a JSON object counts, whatever its type is said to be, as with Dapr.

    Args:
        status: of HTTP.
        headers: names in lower case.
        body: its beginning.
        cut_off: the rest of it did not come.
    """
    value = parsed(body) if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT else None
    return AppAnswer(status, headers, body, value if isinstance(value, dict) else None, cut_off)


def base_of(settings: PushSettings) -> str:
    """The URL that routes are put behind."""
    return settings.url if settings.profile is Profile.KNATIVE and settings.route is None else settings.url.rstrip("/")


def connect_seconds(seconds: float) -> float:
    """How long a connection may take: less than the answer, or a dead host would look like a slow app."""
    return min(_CONNECT_SECONDS, seconds / 2)


def tls_of(settings: PushSettings) -> ssl.SSLContext | None:
    """For https URLs, None for others.

    Raises:
        IllegalSetting: a file cannot be used.
    """
    if urlsplit(settings.url).scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
    except (OSError, ssl.SSLError) as error:
        raise IllegalSetting(f"ca_file, cert_file, key_file: {error}") from None
    return context
