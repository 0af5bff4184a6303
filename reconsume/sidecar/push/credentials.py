"""The token and the certificates that the sidecar shows to an app. Changed files are read again."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.requests.requests import HttpHeaders
from reconsume.sidecar.push.settings import Profile, PushSettings

logger = SafeLogger(__name__)

_Stamp = tuple[int, int]


def _stamp_of(file: Path) -> _Stamp:
    stat = file.stat()
    return stat.st_mtime_ns, stat.st_size


class _Files:
    """Reads files, also again; what cannot be used then is logged once, and the former content stays.

    Args:
        names: the settings that name the files, for messages.
        read: reads the files, if they have changed.

    Raises:
        IllegalSetting: `read` raises an `OSError` or a `ValueError`.
    """

    def __init__(self, names: str, read: Callable[[], object]) -> None:
        self._names = names
        self._read = read
        self._trouble = ""
        try:
            read()
        except (OSError, ValueError) as error:
            raise IllegalSetting(f"{names}: {error}") from None

    def read_again(self) -> None:
        """Read files that may be just being replaced."""
        try:
            self._read()
            self._trouble = ""
        except (OSError, ValueError) as error:
            if self._trouble != (trouble := f"{self._names}: {error}"):
                self._trouble = trouble
                logger.warning("%s; the former one is used until the file changes", trouble)


class Token:
    """The text of a file, read again when the file changes; if that fails, the old text stays.

    Raises:
        IllegalSetting: the file cannot be read, or its text is illegal in an HTTP header.
    """

    def __init__(self, file: Path, profile: Profile) -> None:
        self._file = file
        self._dapr = profile is Profile.DAPR
        self._stamp: _Stamp | None = None
        self._headers: HttpHeaders = []
        self._files = _Files(f"token_file {file}", self._read)

    def headers(self) -> HttpHeaders:
        """Return the headers with the current token."""
        self._files.read_again()
        return self._headers

    def _read(self) -> None:
        if (stamp := _stamp_of(self._file)) == self._stamp:
            return
        token = self._file.read_text(encoding="ascii").strip()
        if not token or not all("!" <= one <= "~" for one in token):
            raise ValueError("must hold one token of printable ASCII")
        self._headers = [("dapr-api-token", token)] if self._dapr else [("authorization", f"Bearer {token}")]
        self._stamp = stamp


class ClientTls:
    """The TLS context for an `https://` app, made again when a file changes; if that fails, the old one stays.

    Certificates of clients often live for a day. With an old one, the app would refuse each connection, and its
    messages would be held until the sidecar restarts.

    Raises:
        IllegalSetting: a file cannot be used.
    """

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._stamps: Sequence[_Stamp] | None = None
        self._files = _Files("ca_file, cert_file, key_file", self._read)

    def context(self) -> ssl.SSLContext:
        """Return the current context."""
        self._files.read_again()
        return self._context

    def _read(self) -> None:
        settings, stamps = self._settings, self._found()
        if stamps == self._stamps:
            return
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        self._context, self._stamps = context, stamps

    def _found(self) -> Sequence[_Stamp]:
        files = (self._settings.ca_file, self._settings.cert_file, self._settings.key_file)
        return [_stamp_of(one) for one in files if one is not None]
