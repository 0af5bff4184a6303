"""Tokens: a shared one, and those of people in a file."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from reconsume.bridge.http.header_text import header_text
from reconsume.bridge.process.environment import read_secret_file
from reconsume.console.sign_in.access import SHARED_TOKEN, printable
from reconsume.delay_levels.errors import IllegalSetting

_BASIC: Final = "basic "
_BEARER: Final = "bearer "
_FEWEST_CHARACTERS: Final = 16


def same_secret(shown: str, secret: str) -> bool:
    """Compare secrets in constant time."""
    return hmac.compare_digest(shown.encode(errors="surrogatepass"), secret.encode())


class Tokens:
    """Finds the owner of a token.

    Args:
        by_name: the tokens of people.
    """

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._by_name = dict(by_name)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def name_of(self, authorization: str) -> str | None:
        """Return the owner of the token in the header `authorization`; None without a known token.

        A token is the password of HTTP Basic with any user name, or a bearer token. The comparison takes constant
        time.
        """
        shown = shown_token(authorization)
        known = [name for name, token in self._by_name.items() if same_secret(shown, token)]
        return known[0] if known else None


def shown_token(authorization: str) -> str:
    """Return the token of the header `authorization`, decoded as Latin-1, or an empty text."""
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return header_text(authorization[len(_BEARER) :].encode("latin-1")).strip()
    if authorization[: len(_BASIC)].lower() != _BASIC:
        return ""
    try:
        text = base64.b64decode(authorization[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return ""
    return text.partition(":")[2]


def parse_tokens(shared: str | None, text: str | None) -> Tokens:
    """Read the tokens of people: a line is a name, a space and a token; `#` begins a comment.

    Args:
        shared: the token `console.token`.
        text: the tokens of people; None without a file.

    Raises:
        IllegalSetting: an invalid line, or a short or duplicate token.
    """
    found = {} if shared is None else {SHARED_TOKEN: shared}
    if text is None:
        return Tokens(found)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, token = line.strip().partition(" ")
        token = token.strip()
        if len(token) < _FEWEST_CHARACTERS or " " in token or name != printable(name):
            raise IllegalSetting(
                f"setting console.tokens, line {number}: write a name of at most 64 characters, a space and a token of "
                f"at least {_FEWEST_CHARACTERS} characters; make one: openssl rand -hex 32"
            )
        if name in found or token in found.values():
            raise IllegalSetting(
                f"setting console.tokens, line {number}: name or token is already in use (`token` is the shared one); "
                "choose another"
            )
        found[name] = token
    if not found:
        raise IllegalSetting("setting console.tokens is empty; write a line with a name, a space and a token")
    return Tokens(found)


def read_secret(setting: str, text: SecretStr | None, file: Path | None) -> str | None:
    """Return a secret from the settings, or from the file that they name; None without one.

    Raises:
        IllegalSetting: the file cannot be read.
    """
    if text is not None:
        return text.get_secret_value().strip()
    return None if file is None else read_secret_file(f"setting {setting}_file", file).strip()
