"""Sign-in with an OpenID Connect provider: the authorization code flow with PKCE. All calls block."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from reconsume.bridge.process.clock import Clock
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.console.settings import OidcSettings
from reconsume.console.sign_in.access import SignedIn, printable
from reconsume.console.sign_in.tokens import read_secret

logger = SafeLogger(__name__)

CALLBACK: Final = "/sign-in/callback"
_SECONDS: Final = 10.0
_MOST_BYTES: Final = 1_048_576
_ALGORITHMS: Final = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
]
_KNOWN_SECONDS: Final = 3_600.0
_AGAIN_SECONDS: Final = 30.0
_FAILED_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 1.0
_MOST_TOKENS: Final = 8
"""Maximum of threads that wait for tokens; the console has 40 for all its pages."""
_LEEWAY_SECONDS: Final = 60


class SignInFailed(Exception):
    """The provider does not answer, or an answer cannot be trusted; the text says which."""


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """The state that a browser carries while it is at the provider."""

    state: str
    nonce: str
    verifier: str
    path: str


class OidcProvider:
    """The client of one provider.

    Guarantees: an id token counts only if the provider has signed it for this console and this attempt, and it has not
    expired. Test: tests/unit/console/sign_in/test_oidc.py.

    Args:
        settings: the settings of the provider.
        clock: returns milliseconds.
    """

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._secret = read_secret("console.oidc.client_secret", settings.client_secret, settings.client_secret_file)
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._asked_at = self._failed_at = float("-inf")
        self._begun_at = float("inf")
        self._failure = ""
        self._tokens = threading.BoundedSemaphore(_MOST_TOKENS)

    def begin(self, path: str) -> tuple[str, SignInAttempt]:
        """Return the address for signing in, and the state for the browser to carry.

        Args:
            path: the requested page of the console.

        Raises:
            SignInFailed: the provider does not answer.
        """
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = SignInAttempt(state, nonce, verifier, path)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._callback,
            "scope": " ".join(self._settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self._fact("authorization_endpoint")
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", attempt

    def finish(self, query: Mapping[str, str], attempt: SignInAttempt) -> SignedIn:
        """Return the person who has signed in.

        Args:
            query: the query with which the browser returned.
            attempt: the state that it carried.

        Raises:
            SignInFailed: the provider refused, does not answer, or its answer is not for this attempt.
        """
        if "error" in query:
            raise SignInFailed(f"the provider refused: {query['error']} {query.get('error_description', '')}".strip())
        if not secrets.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise SignInFailed("the provider's answer belongs to another sign-in; sign in again")
        form = {
            "grant_type": "authorization_code",
            "code": query.get("code", ""),
            "redirect_uri": self._callback,
            "code_verifier": attempt.verifier,
        }
        headers = {}
        if self._secret is None:
            form["client_id"] = self._settings.client_id
        else:
            pair = f"{quote(self._settings.client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        address = self._fact("token_endpoint")
        if not self._tokens.acquire(blocking=False):
            raise SignInFailed(
                f"too many sign-ins wait for the provider {self._settings.issuer}; reload this page later"
            )
        try:
            answer = _ask(address, urlencode(form).encode(), headers)
        finally:
            self._tokens.release()
        return self._identity_of(str(answer.get("id_token", "")), attempt.nonce)

    @property
    def _callback(self) -> str:
        return self._settings.console_url + CALLBACK

    def _identity_of(self, id_token: str, nonce: str) -> SignedIn:
        claims = self._decoded(id_token)
        registry = jwt.JWTClaimsRegistry(
            now=int(self._clock() / 1000),
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": self._settings.client_id},
            nonce={"essential": True, "value": nonce},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            registry.validate(claims)
        except JoseError as error:
            raise SignInFailed(f"the provider's id token cannot be used: {error}") from None
        if claims.get("azp", self._settings.client_id) != self._settings.client_id:
            raise SignInFailed("the provider's id token is for another client; see console.oidc.client_id")
        wanted = self._settings.name_claim
        name = claims.get(wanted)
        if not isinstance(name, str) or not name.strip() or name != printable(name):
            raise SignInFailed(f"the provider's id token has no usable claim {wanted!r}; see console.oidc.name_claim")
        if wanted == "email" and claims.get("email_verified") is not True:
            raise SignInFailed("the provider has not verified this email address; verify it there, then sign in again")
        teams = claims.get(self._settings.teams_claim, [])
        told = [teams] if isinstance(teams, str) else teams if isinstance(teams, list) else []
        return SignedIn(name, frozenset(one for one in told if isinstance(one, str)))

    def _decoded(self, id_token: str) -> dict[str, Any]:
        """Return the verified claims; an unknown key is looked up once more."""
        for is_again in (False, True):
            try:
                return dict(jwt.decode(id_token, self._key_set(is_again=is_again), algorithms=_ALGORITHMS).claims)
            except (JoseError, ValueError) as error:
                failed = error
        raise SignInFailed(f"the provider's id token cannot be used: {failed}")

    def _key_set(self, *, is_again: bool) -> KeySet:
        self._look(_AGAIN_SECONDS if is_again else _KNOWN_SECONDS)
        assert self._keys is not None
        return self._keys

    @property
    def _issuer(self) -> str:
        return self._fact("issuer")

    def _fact(self, name: str) -> str:
        self._look(_KNOWN_SECONDS)
        return str(self._facts[name])

    def _is_known(self, known_seconds: float) -> bool:
        return self._keys is not None and time.monotonic() - self._asked_at < known_seconds

    def _look(self, known_seconds: float) -> None:
        """Get the provider's addresses and keys, unless they are younger than this.

        Older ones remain in use while the provider does not answer.
        """
        try:
            if not self._is_known(known_seconds):
                self._look_alone(known_seconds)
        except SignInFailed:
            if self._keys is None:
                raise

    def _look_alone(self, known_seconds: float) -> None:
        """Ask the provider in one thread only; the others wait at most a second for it.

        Anyone may begin a sign-in, and all pages share the threads: a provider that hangs must not hold them.
        """
        left = self._begun_at + _PATIENCE_SECONDS - time.monotonic()
        if not self._lock.acquire(timeout=min(max(0.0, left), _PATIENCE_SECONDS)):
            raise SignInFailed(f"the provider {self._settings.issuer} has not answered yet; sign in again later")
        try:
            if self._is_known(known_seconds):
                return
            if time.monotonic() - self._failed_at < _FAILED_SECONDS:
                raise SignInFailed(self._failure)
            self._begun_at = time.monotonic()
            try:
                self._facts, self._keys = self._facts_and_keys()
            except SignInFailed as error:
                self._failure, self._failed_at = str(error), time.monotonic()
                logger.warning("provider unavailable, asking again at a later sign-in: %s", error)
                raise
            self._asked_at = time.monotonic()
        finally:
            self._begun_at = float("inf")
            self._lock.release()

    def _facts_and_keys(self) -> tuple[dict[str, Any], KeySet]:
        """Ask the provider for its metadata and keys."""
        facts = _ask(self._settings.issuer + "/.well-known/openid-configuration")
        if str(facts.get("issuer", "")).rstrip("/") != self._settings.issuer:
            raise SignInFailed(
                f"console.oidc.issuer is {self._settings.issuer}, and the provider there calls itself "
                f"{facts.get('issuer')!r}; use that name"
            )
        missing = [one for one in ("authorization_endpoint", "token_endpoint", "jwks_uri") if one not in facts]
        if missing:
            raise SignInFailed(f"the metadata of {self._settings.issuer} has no {', '.join(missing)}")
        try:
            return facts, KeySet.import_key_set(_ask(facts["jwks_uri"]))  # type: ignore[arg-type]  # it checks
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise SignInFailed(f"the keys of {self._settings.issuer} cannot be read: {error}") from None


def _ask(address: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the JSON object at an address of the provider."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise SignInFailed(f"the provider's metadata has an address that is not http(s): {address[:80]!r}")
    request = urllib.request.Request(address, body, {"accept": "application/json", **(headers or {})})  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - the same
            found = json.loads(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            told = error.read(500).decode(errors="replace")
        raise SignInFailed(f"{address} answered {error.code}: {printable(told)}") from None
    except (OSError, ValueError, http.client.HTTPException, RecursionError) as error:
        raise SignInFailed(f"{address} gave no usable answer: {error}") from None
    if not isinstance(found, dict):
        raise SignInFailed(f"{address} answered without a JSON object")
    return found
