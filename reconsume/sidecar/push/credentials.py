"""The token and the certificates that the sidecar shows to an app. Changed files are read again."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.requests.requests import HttpHeaders
from reconsume.sidecar.push.settings import Profile, PushSettings

logger = SafeLogger(__name__)

T = TypeVar("T")


class WatchedFiles(Generic[T]):
    """A value made of files, made again when one changes; if that fails, it is logged once and the old value stays.

    Args:
        names: the settings that name the files, for messages.
        files: the files; None for those that are not set.
        make: makes the value; it may raise an `OSError` or a `ValueError`.

    Raises:
        IllegalSetting: the files cannot be used.
    """

    def __init__(self, names: str, files: Iterable[Path | None], make: Callable[[], T]) -> None:
        self._names, self._make = names, make
        self._files = [one for one in files if one is not None]
        self._trouble = ""
        try:
            self._stamps, self._value = self._found(), make()
        except (OSError, ValueError) as error:
            raise IllegalSetting(f"{names}: {error}") from None

    def value(self) -> T:
        """Return the current value; files may be just being replaced."""
        try:
            if (stamps := self._found()) != self._stamps:
                self._value, self._stamps = self._make(), stamps
            self._trouble = ""
        except (OSError, ValueError) as error:
            if self._trouble != (trouble := f"{self._names}: {error}"):
                self._trouble = trouble
                logger.warning("%s; the former one is used until the file changes", trouble)
        return self._value

    def _found(self) -> list[tuple[int, int]]:
        return [(stat.st_mtime_ns, stat.st_size) for stat in (file.stat() for file in self._files)]


def watch_token(file: Path, profile: Profile) -> WatchedFiles[HttpHeaders]:
    """Return the headers with the token of a file.

    Raises:
        IllegalSetting: the file cannot be read, or its text is illegal in an HTTP header.
    """

    def headers() -> HttpHeaders:
        token = file.read_text(encoding="ascii").strip()
        if not token or not all("!" <= one <= "~" for one in token):
            raise ValueError("must hold one token of printable ASCII")
        return [("dapr-api-token", token)] if profile is Profile.DAPR else [("authorization", f"Bearer {token}")]

    return WatchedFiles(f"token_file {file}", [file], headers)


def watch_tls(settings: PushSettings) -> WatchedFiles[ssl.SSLContext]:
    """Return the TLS context for an `https://` app.

    Certificates of clients often live for a day. With an old one, the app would refuse each connection, and its
    messages would be held until the sidecar restarts.

    Raises:
        IllegalSetting: a file cannot be used.
    """
    files = settings.ca_file, settings.cert_file, settings.key_file

    def context() -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            made.load_cert_chain(settings.cert_file, settings.key_file)
        return made

    return WatchedFiles("ca_file, cert_file, key_file", files, context)
