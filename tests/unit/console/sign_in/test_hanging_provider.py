"""A provider that hangs: threads that wait for it are missing for all other pages."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from reconsume.bridge.process.clock import now_ms
from reconsume.console.settings import OidcSettings
from reconsume.console.sign_in import oidc
from reconsume.console.sign_in.oidc import OidcProvider, SignInAttempt, SignInFailed
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.usefixtures("_failures_are_kept")

ATTEMPT = SignInAttempt("s", "n", "v", "/")


@pytest.fixture
def _failures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_FAILED_SECONDS", 600.0)


class _Answers:
    """What the provider answers; each answer waits for `opened`."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.opened.set()
        self.asked = threading.Semaphore(0)
        self.addresses: list[str] = []
        self.failure = ""
        self._keys = {"keys": [RSAKey.generate_key(2048, {"kid": "1"}).as_dict(private=False)]}

    def ask(self, address: str, *_: object) -> dict[str, Any]:
        self.addresses.append(address)
        self.asked.release()
        assert self.opened.wait(PATIENCE)
        if self.failure:
            raise SignInFailed(self.failure)
        facts = {one: f"https://a.example/{one}" for one in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
        return self._keys if address.endswith("jwks_uri") else facts | {"issuer": "https://a.example"}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> _Answers:
    made = _Answers()
    monkeypatch.setattr(oidc, "_ask", made.ask)
    return made


def provider(issuer: str = "https://a.example") -> OidcProvider:
    return OidcProvider(OidcSettings(issuer=issuer, client_id="console", console_url="https://c.example"), now_ms)


@contextmanager
def silent_server() -> Iterator[tuple[str, list[socket.socket]]]:
    """Accept connections without an answer: the address, and the connections."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                connections.append(server.accept()[0])
                if stop.is_set():
                    return

        stop, thread = threading.Event(), threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
        finally:
            stop.set()
            socket.create_connection(server.getsockname()).close()
            thread.join(PATIENCE)
            for one in connections:
                one.close()


def failure_of(hanging: OidcProvider) -> str:
    try:
        hanging.begin("/")
    except SignInFailed as error:
        return str(error)
    return ""


def test_a_provider_that_never_answers_is_asked_once_for_all_who_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_SECONDS", 0.3)
    with silent_server() as (address, connections), ThreadPoolExecutor(6) as threads:
        hanging = provider(address)
        failures = list(threads.map(failure_of, [hanging] * 6))
        assert all(address in one for one in failures), failures
        assert "gave no usable answer" in failure_of(hanging)
        assert len(connections) == 1


def test_while_one_waits_for_the_provider_others_are_told_so(
    answers: _Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_PATIENCE_SECONDS", 0.01)
    answers.opened.clear()
    slow = provider()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(slow.begin, "/")
        assert answers.asked.acquire(timeout=30)
        assert "has not answered yet" in failure_of(slow)
        answers.opened.set()
        assert first.result(PATIENCE)[0].startswith("https://a.example/authorization_endpoint?")
    assert failure_of(slow) == ""


def test_who_comes_while_the_provider_answers_waits_for_it(answers: _Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "_PATIENCE_SECONDS", 30.0)
    answers.opened.clear()
    good = provider()
    with ThreadPoolExecutor(6) as threads:
        begun = [threads.submit(failure_of, good) for _ in range(6)]
        assert answers.asked.acquire(timeout=30)
        answers.opened.set()
        assert [one.result(PATIENCE) for one in begun] == [""] * 6
    assert len(answers.addresses) == 2, "the metadata and the keys"


def test_old_keys_count_until_the_provider_answers_again(answers: _Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    known = provider()
    known.begin("/")
    monkeypatch.setattr(oidc, "_KNOWN_SECONDS", 0.0)
    answers.failure = "away"
    assert (failure_of(known), failure_of(known), len(answers.addresses)) == ("", "", 3)
    monkeypatch.setattr(oidc, "_FAILED_SECONDS", 0.0)
    answers.failure = ""
    assert (failure_of(known), len(answers.addresses)) == ("", 5)


def test_a_failure_is_forgotten_after_a_while(answers: _Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    answers.failure = "away"
    away = provider()
    assert [failure_of(away), failure_of(away)] == ["away", "away"]
    assert len(answers.addresses) == 1
    monkeypatch.setattr(oidc, "_FAILED_SECONDS", 0.0)
    answers.failure = ""
    assert failure_of(away) == ""


def test_only_some_threads_wait_for_tokens(answers: _Answers) -> None:
    slow = provider()
    slow.begin("/")
    answers.opened.clear()
    query = {"state": "s", "code": "c"}
    with ThreadPoolExecutor(oidc._MOST_TOKENS) as threads:
        begun = [threads.submit(slow.finish, query, ATTEMPT) for _ in range(oidc._MOST_TOKENS)]
        for _ in range(2 + oidc._MOST_TOKENS):
            assert answers.asked.acquire(timeout=30)
        with pytest.raises(SignInFailed, match="too many sign-ins wait"):
            slow.finish(query, ATTEMPT)
        answers.opened.set()
        assert all(isinstance(one.exception(30), SignInFailed) for one in begun), "the answer has no id token"
    with pytest.raises(SignInFailed, match="id token"):
        slow.finish(query, ATTEMPT)
