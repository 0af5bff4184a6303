"""Sign-in by the configured method: tokens, a proxy, or an OpenID Connect provider."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import asdict
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.console.settings import ConsoleSettings
from reconsume.console.sign_in.access import EVERYBODY, SHARED_TOKEN, ConsoleCaller, ConsoleRole, SignedIn, caller_of
from reconsume.console.sign_in.oidc import CALLBACK, OidcProvider, SignInAttempt, SignInFailed
from reconsume.console.sign_in.proxy import ProxySignIn
from reconsume.console.sign_in.signed import open_signed, sign
from reconsume.console.sign_in.tokens import parse_tokens, read_secret
from reconsume.delay_levels.errors import IllegalSetting

logger = SafeLogger(__name__)

BEGIN: Final = "/sign-in"
END: Final = "/sign-out"
SIGNED_OUT: Final = "/signed-out"
OPEN_PATHS: Final = frozenset({BEGIN, CALLBACK})
_ATTEMPT: Final = "reconsume-sign-in"
_SESSION: Final = "reconsume-session"
_ATTEMPT_SECONDS: Final = 600
_STATE_CHARACTERS: Final = 16
_LONGEST_PATH: Final = 600
_MOST_ATTEMPTS: Final = 5
"""Further attempts replace them: proxies refuse requests whose cookies have more than 8 KiB together."""
_SHORTEST_KEY: Final = 32


class SignIn:
    """Identifies the caller of a request.

    Args:
        settings: the settings of the console.
        clock: returns milliseconds.

    Raises:
        IllegalSetting: a token or a key is unusable or missing.
    """

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        token = settings.read_token()
        self._access = settings.access
        self._clock = clock
        self._tokens = parse_tokens(token, read_secret("console.tokens", settings.tokens, settings.tokens_file))
        self._proxy = None if settings.proxy is None else ProxySignIn(settings.proxy)
        self._provider = None if settings.oidc is None else OidcProvider(settings.oidc, clock)
        self._is_secure = settings.oidc is not None and urlsplit(settings.oidc.console_url).scheme == "https"
        self._session_ms = settings.session_hours * 3_600_000
        # The shared token must not allow anyone to sign sessions of others.
        own = _read_key(settings)
        self._key = own or secrets.token_bytes(32)
        self._forms_key = own or (token.encode() if token is not None else self._key)

    @property
    def has_sessions(self) -> bool:
        """Whether people sign in and out on pages of this console."""
        return self._provider is not None

    @property
    def is_open(self) -> bool:
        """Whether everyone may do everything, because no sign-in is set."""
        return not (self._tokens or self._proxy or self._provider)

    def caller_of(self, request: Request) -> ConsoleCaller | None:
        """Return the caller; None if the request does not identify one."""
        if self.is_open:
            return EVERYBODY
        name = self._tokens.name_of(request.headers.get("authorization", ""))
        if name == SHARED_TOKEN:
            # The shared token is that of the installation.
            return caller_of(SignedIn(name), (), otherwise=ConsoleRole.ADMIN)
        if name is not None:
            return caller_of(SignedIn(name), self._access, otherwise=ConsoleRole.ADMIN)
        identity = None
        if self._proxy is not None:
            identity = self._proxy.identity_of(request.client and request.client.host, request.headers)
        if identity is None and self._provider is not None:
            identity = self._session_of(request)
        return None if identity is None else caller_of(identity, self._access, otherwise=None)

    def token_of_forms(self, caller: ConsoleCaller) -> str:
        """Return the token in a person's forms, which another site cannot know."""
        return hmac.digest(self._forms_key, f"forms\n{caller.name}".encode(), "sha256").hex()

    def begin(self, request: Request) -> Response:
        """Send a browser to the provider; it returns to the path in `next`.

        Raises:
            SignInFailed: the provider does not answer, or none is set.
        """
        path = request.query_params.get("next", "/")
        address, attempt = self._must_have_provider().begin(path if _is_path(path) else "/")
        response = RedirectResponse(address, 303)
        others = [one for one in request.cookies if one.startswith(self._name(_ATTEMPT))]
        for one in others if len(others) >= _MOST_ATTEMPTS else ():
            self._forget(response, one)
        until_ms = self._clock() + _ATTEMPT_SECONDS * 1000
        kept = sign(self._key, _ATTEMPT, asdict(attempt), until_ms)
        self._set(response, _cookie_of(attempt.state), kept, _ATTEMPT_SECONDS)
        return response

    def finish(self, request: Request) -> Response:
        """Handle a browser that returns from the provider.

        Raises:
            SignInFailed: the person cannot be identified.
        """
        cookie = self._name(_cookie_of(request.query_params.get("state", "")))
        kept = open_signed(self._key, _ATTEMPT, request.cookies.get(cookie, ""), self._clock())
        if kept is None:
            raise SignInFailed("the sign-in took more than ten minutes, or began in another browser: begin again")
        attempt = SignInAttempt(**kept)
        identity = self._must_have_provider().finish(request.query_params, attempt)
        logger.info("signed in name=%s teams=%d", identity.name, len(identity.teams))
        response = RedirectResponse(attempt.path, 303)
        # A cookie holds only a few teams, and people may have many.
        known = {team for rule in self._access for team in rule.teams}
        content = {"name": identity.name, "teams": sorted(identity.teams & known)}
        session = sign(self._key, _SESSION, content, self._clock() + self._session_ms)
        self._set(response, _SESSION, session, int(self._session_ms / 1000))
        self._forget(response, cookie)
        return response

    def end(self) -> Response:
        """Forget a session."""
        response = RedirectResponse(SIGNED_OUT, 303)
        self._forget(response, self._name(_SESSION))
        return response

    def _must_have_provider(self) -> OidcProvider:
        if self._provider is None:
            raise SignInFailed("this console has no provider: see the setting console.oidc")
        return self._provider

    def _session_of(self, request: Request) -> SignedIn | None:
        content = open_signed(self._key, _SESSION, request.cookies.get(self._name(_SESSION), ""), self._clock())
        return None if content is None else SignedIn(content["name"], frozenset(content["teams"]))

    def _name(self, cookie: str) -> str:
        """Return the cookie's name; browsers accept this prefix only over TLS from this host."""
        return f"__Host-{cookie}" if self._is_secure else cookie

    def _forget(self, response: Response, name: str) -> None:
        response.delete_cookie(name, secure=self._is_secure, httponly=True, samesite="lax")

    def _set(self, response: Response, cookie: str, value: str, seconds: int) -> None:
        # Lax: the return from the provider begins on another site.
        response.set_cookie(
            self._name(cookie), value, max_age=seconds, secure=self._is_secure, httponly=True, samesite="lax"
        )


def _cookie_of(state: str) -> str:
    """Return the name of an attempt's cookie: each has its own, because several tabs may sign in at the same time."""
    return f"{_ATTEMPT}-{state[:_STATE_CHARACTERS]}"


def _is_path(path: str) -> bool:
    """Return whether it is a path of this console, not an address of another site, and fits into a cookie."""
    is_ours = path.startswith("/") and not path.startswith(("//", "/\\"))
    return is_ours and path.isascii() and path.isprintable() and len(path) <= _LONGEST_PATH


def _read_key(settings: ConsoleSettings) -> bytes | None:
    """Return the key; several consoles behind one name need the same to accept each other's forms and sessions."""
    key = read_secret("console.session_key", settings.session_key, settings.session_key_file)
    if key is not None and len(key) < _SHORTEST_KEY:
        raise IllegalSetting(
            f"setting console.session_key: at least {_SHORTEST_KEY} characters; make one: openssl rand -hex 32"
        )
    return None if key is None else key.encode()
