"""HTTP to the app: what every client does, and the one for HTTP/1.1."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from multidict import CIMultiDict

from reconsume.consumers.sidecar.push.answers import Answer, NoAnswer
from reconsume.consumers.sidecar.push.cloud_events import parsed
from reconsume.consumers.sidecar.push.facts import HttpHeaders
from reconsume.consumers.sidecar.push.requests import AppRequest
from reconsume.consumers.sidecar.push.settings import Profile, PushSettings
from reconsume.delay_levels.errors import IllegalSetting

try:
    import aiohttp
    from yarl import URL
except ImportError as error:  # pragma: no cover - an extra
    raise ImportError("the sidecar's push needs aiohttp: pip install 'reconsume[sidecar]'") from error

__all__ = ["BODY_LIMIT", "AppClient", "Http1Client", "Token", "answer_of", "base_of", "connect_seconds", "tls_of"]

BODY_LIMIT: Final = 64 * 1024
"""Nobody looks further into an app's answer; the rest of a longer one is not read."""
_CONNECT_SECONDS: Final = 5.0
_KEEP_ALIVE_SECONDS: Final = 4.0
"""Less than the 5 s after which common servers hang up, which a request on its way would meet."""
_LARGE: Final = 2**20


class AppClient(Protocol):
    """Asks the app; used in one event loop."""

    async def send(self, method: str, request: AppRequest, seconds: float) -> Answer | NoAnswer:
        """The app's answer, or why there is none within so long; redirects are answers. Raises nothing."""

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


class Http1Client:
    """HTTP/1.1 with keep-alive, over TCP, TLS or a Unix socket.

    On aiohttp, because a request costs a sixth of the CPU that it costs on httpx2: benchmarks/sidecar_push.py.
    """

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._base = base_of(settings)
        self._tls = tls_of(settings)
        self._token = None if settings.token_file is None else Token(settings.token_file, settings.profile)
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[str, URL] = {}

    async def send(self, method: str, request: AppRequest, seconds: float) -> Answer | NoAnswer:
        """As the protocol says."""
        session = self._session or self._open(seconds)
        headers = CIMultiDict(request.headers)
        if self._token is not None:
            headers.extend(self._token.headers())
        try:
            async with (
                asyncio.timeout(seconds),
                session.request(
                    method, self._url(request.path), data=_payload(request.body), headers=headers, allow_redirects=False
                ) as response,
            ):
                body = await _beginning(response)
        except aiohttp.ConnectionTimeoutError:
            return NoAnswer(f"no connection to {self._base} within {connect_seconds(seconds):g} s")
        except TimeoutError:
            return NoAnswer(f"consume timeout: no answer within {seconds:g} s", timed_out=True)
        except (aiohttp.ClientError, OSError) as error:
            # What the app sent instead of an answer is in the text of the others; it does not belong into the log.
            text = f": {error}" if isinstance(error, aiohttp.ClientConnectorError) else ""
            return NoAnswer(f"{self._base}: {type(error).__name__}{text}")
        return answer_of(response.status, response.headers, body)

    async def aclose(self) -> None:
        """Close its connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self, seconds: float) -> aiohttp.ClientSession:
        settings = self._settings
        if settings.unix_socket is not None:
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(
                str(settings.unix_socket), limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS
            )
        else:
            connector = aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, ssl=True if self._tls is None else self._tls
            )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("content-type",),
            headers={"user-agent": "reconsume", "accept-encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds(seconds)),
        )
        return self._session

    def _url(self, path: str) -> URL:
        found = self._urls.get(path)
        if found is None:
            found = self._urls[path] = URL(self._base + path, encoded=True)
        return found


def _payload(body: bytes) -> bytes | io.BytesIO:
    """A large body goes in pieces, so that it does not hold up the other deliveries."""
    return body if len(body) < _LARGE else io.BytesIO(body)


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    if response.content_length == 0:
        return b""
    body = b""
    while len(body) < BODY_LIMIT and (chunk := await response.content.read(BODY_LIMIT - len(body))):
        body += chunk
    if not response.content.at_eof():
        response.close()
    return body


def answer_of(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """An answer; a body that is a JSON object counts, whatever its type is said to be, as with Dapr."""
    found = {name.lower(): value for name, value in headers.items()}
    value = parsed(body) if body.lstrip()[:1] == b"{" and len(body) < BODY_LIMIT else None
    return Answer(status, found, body, value if isinstance(value, dict) else None)


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
