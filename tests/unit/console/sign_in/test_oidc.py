"""Sign-in with an OpenID Connect provider that another project has made, over real sockets."""

from __future__ import annotations

import http.client
import importlib
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from reconsume.bridge.process.clock import now_ms
from reconsume.bridge.process.settings import Settings
from reconsume.console.settings import OidcSettings
from reconsume.console.sign_in import oidc
from reconsume.console.sign_in.oidc import OidcProvider, SignInAttempt, SignInFailed
from tests.support.consoles import Answered, Browser, console_settings, running_console
from tests.support.waiting import PATIENCE
from tests.unit.console.fake_cluster import LETTERS, FakeCluster, letter

pytestmark = pytest.mark.filterwarnings("ignore")  # of the provider, about its own libraries

ACCESS = [{"role": "operator", "teams": ["sre"]}, {"role": "viewer", "people": ["bert"]}]


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with warnings.catch_warnings():
        importlib.import_module("authlib.deprecate")  # it shows its warnings, whatever the filters were before
        warnings.simplefilter("ignore")
        from oidc_provider_mock import (  # noqa: PLC0415 - it warns of its own libraries
            User,
            run_server_in_thread,
        )

        users = [
            User(sub="1", claims={"preferred_username": "anna", "groups": ["sre", *(f"team-{n}" for n in range(500))]}),
            User(sub="2", claims={"preferred_username": "bert"}),
            User(sub="3", claims={"preferred_username": "carl"}),
            User(sub="4", claims={"preferred_username": "an\nna"}),
        ]
        with run_server_in_thread(user_claims=users) as server:
            yield f"http://localhost:{server.server_port}"


@contextmanager
def console(issuer: str, cluster: FakeCluster, **more: Any) -> Iterator[Browser]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    provider = {"issuer": issuer, "client_id": "console", "client_secret": "secret", "console_url": address}
    settings = console_settings(Settings(), listen={"port": port}, access=ACCESS, oidc=provider, **more)
    with running_console(settings, cluster) as browser:
        yield browser


def ask(url: str, body: bytes | None = None) -> http.client.HTTPResponse:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    kind = {} if body is None else {"content-type": "application/x-www-form-urlencoded"}
    connection.request("GET" if body is None else "POST", f"{parts.path}?{parts.query}", body, kind)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def cookie_of(answer: Answered, name: str) -> str:
    found = re.search(rf"reconsume-{name}[^=;]*=[^;]+", answer.headers["set-cookie"])
    assert found, answer.headers
    return found[0]


def way_back(browser: Browser, sub: str, path: str = "/") -> tuple[str, str]:
    """Go to the provider and sign in there: the address of the way back, and the cookie that was kept."""
    sent = browser.get(path)
    assert (sent.status, sent.headers["location"]) == (303, "/sign-in?" + urlencode({"next": path}))
    begun = browser.get(sent.headers["location"])
    assert begun.status == 303, begun.text
    assert "httponly" in begun.headers["set-cookie"].lower()
    back = ask(begun.headers["location"], urlencode({"sub": sub}).encode()).getheader("location") or ""
    return back.partition(browser.address)[2], cookie_of(begun, "sign-in")


def signed_in(browser: Browser, sub: str, path: str = "/") -> Answered:
    back, kept = way_back(browser, sub, path)
    return browser.get(back, cookie=kept)


def test_a_person_signs_in_sends_again_under_their_name_and_signs_out(issuer: str) -> None:
    cluster = FakeCluster(letters={"departures": [letter(1)]})
    with console(issuer, cluster) as browser:
        done = signed_in(browser, "1", LETTERS + "?text=x")
        assert (done.status, done.headers["location"]) == (303, LETTERS + "?text=x")
        browser.headers = {"cookie": cookie_of(done, "session")}
        page = browser.get(LETTERS)
        assert "Signed in as anna" in page.seen.words
        browser.send(browser.send(page.seen.form("/job"), ("place", "0/1")).seen.form("/jobs"))
        assert [one.spec.by for one in cluster.jobs.values()] == ["anna"]
        out = browser.send(page.seen.form("/sign-out"))
        assert (out.status, out.headers["location"]) == (303, "/signed-out")
        assert "max-age=0" in out.headers["set-cookie"].lower()
        browser.headers = {}
        assert browser.get("/signed-out").status == 200
        assert browser.get(LETTERS).status == 303


def test_roles_are_those_of_the_claims(issuer: str) -> None:
    with console(issuer, FakeCluster(letters={"departures": [letter(1)]})) as browser:
        bert, carl = (cookie_of(signed_in(browser, sub), "session") for sub in ("2", "3"))
        page = browser.get(LETTERS, cookie=bert)
        assert (page.status, [form.action for form in page.seen.forms if "resend" in form.action]) == (200, [])
        refused = browser.get("/", cookie=carl)
        assert (refused.status, "carl has no role" in refused.seen.words) == (403, True)
        assert (
            browser.ask(
                *("POST", "/sign-out", urlencode(refused.seen.form("/sign-out").fields).encode(), {"cookie": carl})
            ).headers["location"]
            == "/signed-out"
        ), "they may sign in as somebody else"


def test_what_is_not_of_this_attempt_signs_nobody_in(issuer: str) -> None:
    with console(issuer, FakeCluster()) as browser:
        back, kept = way_back(browser, "1")
        other, _ = way_back(browser, "2")
        for path, cookie in ((back, ""), (back, kept[:-1]), (other, kept), (back.replace("code=", "code=x"), kept)):
            page = browser.get(path, cookie=cookie)
            assert (page.status, "Traceback" in page.text) == (401, False), path
            assert "session" not in page.headers.get("set-cookie", "")
        assert browser.get(back, cookie=kept).status == 303
        assert browser.get(back, cookie=kept).status == 401, "a code counts once"
        refused = browser.get("/sign-in/callback?error=access_denied&" + back.partition("?")[2], cookie=kept)
        assert "access_denied" in refused.seen.words
        assert signed_in(browser, "4").status == 401, "a name of two lines"
        for path in ("//evil.example", "https://evil.example", "/\\evil.example", "/?q=" + "x" * 3_000):
            begun = browser.get("/sign-in?" + urlencode({"next": path}))
            assert len(begun.headers["set-cookie"]) < 1_600
            answer = ask(begun.headers["location"], b"sub=1").getheader("location") or ""
            done = browser.get(answer.partition(browser.address)[2], cookie=cookie_of(begun, "sign-in"))
            assert done.headers["location"] == "/"


def test_several_tabs_sign_in_at_the_same_time(issuer: str) -> None:
    with console(issuer, FakeCluster()) as browser:
        (first, kept), (second, other) = way_back(browser, "1", "/jobs"), way_back(browser, "1")
        cookies = dict(one.split("=", 1) for one in (kept, other))
        both = "; ".join(f"{name}={value}" for name, value in cookies.items())
        done = [browser.get(back, cookie=both) for back in (first, second)]
        assert [(one.status, one.headers.get("location")) for one in done] == [(303, "/jobs"), (303, "/")]


def test_attempts_that_nobody_ends_do_not_pile_up_in_the_browser(issuer: str) -> None:
    path = "/sign-in?" + urlencode({"next": "/?q=" + "x" * 590})
    with console(issuer, FakeCluster()) as browser:
        kept = [cookie_of(browser.get(path), "sign-in") for _ in range(5)]
        cookies = "; ".join(kept)
        assert len(cookies) < 8_192
        begun = browser.get("/sign-in", cookie=cookies).headers["set-cookie"]
        forgotten = re.findall(r'(reconsume-sign-in-[^=]+)="";', begun)
        assert forgotten == [one.partition("=")[0] for one in kept]


def test_an_update_of_a_page_begins_no_sign_in_but_reloads_the_page(issuer: str) -> None:
    with console(issuer, FakeCluster()) as browser:
        update = browser.get("/", hx_request="true")
        assert (update.status, update.headers.get("hx-refresh"), "set-cookie" in update.headers) == (401, "true", False)


@pytest.mark.parametrize("typed", ["x", "\u6c49" * 10_000])
def test_a_form_whose_session_has_ended_is_sent_again_after_a_sign_in_in_another_tab(issuer: str, typed: str) -> None:
    cluster = FakeCluster(letters={"departures": [letter(1)]})
    with console(issuer, cluster) as browser:
        cookie = cookie_of(signed_in(browser, "1"), "session")
        form = browser.get(LETTERS + "/0/1/edit", cookie=cookie).seen.form("/job")
        fields = [(name, typed if name == "value" else text) for name, text in form.fields]
        refused = browser.post(form.action, fields)
        assert (refused.status, "reload this page" in refused.seen.words) == (401, True), refused.seen.words
        assert "password of any user name" not in refused.text
        assert "/sign-in" in refused.seen.links
        again = browser.post(form.action, fields, cookie=cookie_of(signed_in(browser, "1"), "session"))
        assert (again.status, typed in again.text) == (200, True)
        for other in (browser.ask("POST", "/api/v1/jobs"), browser.post(form.action, fields, authorization="Bearer x")):
            assert (other.status, "bearer token" in other.text) == (401, True), "a program has no other tab"
        assert "/sign-in" not in browser.get("/sign-in/callback").seen.links


def test_a_provider_that_does_not_answer_is_named() -> None:
    with console("http://127.0.0.1:9", FakeCluster()) as browser:
        page = browser.get("/sign-in")
        assert (page.status, "http://127.0.0.1:9" in page.seen.words) == (401, True)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n{"]
)
def test_a_provider_that_breaks_off_or_speaks_no_http_is_named(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(65_536)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        with console(address, FakeCluster()) as browser:
            page = browser.get("/sign-in")
        thread.join(PATIENCE)
    assert (page.status, f"{address}/.well-known/openid-configuration gave no usable" in page.seen.words) == (401, True)


CLAIMS = {"iss": "https://a.example", "aud": "console", "nonce": "n", "preferred_username": "anna"}


@cache
def key_of(_owner: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "1"})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"iss": "https://b.example"}, "iss"),
        ({"aud": "other"}, "aud"),
        ({"aud": ["console", "other"], "azp": "other"}, "another client"),
        ({"nonce": "m"}, "nonce"),
        ({"exp": 0}, "exp"),
        ({"preferred_username": None}, "no usable claim"),
        ({"preferred_username": ["anna"]}, "no usable claim"),
    ],
)
@pytest.mark.parametrize("signs", ["own", "other", "none"])
def test_an_id_token_counts_if_the_provider_has_signed_it_for_this_attempt(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], why: str | None, signs: str
) -> None:
    key, used = key_of("own"), key_of("own" if signs == "own" else "other")
    times = {"iat": int(now_ms() / 1000), "exp": int(now_ms() / 1000) + 60}
    token = jwt.encode({"alg": "RS256", "kid": "1"}, CLAIMS | times | change, used)
    if signs == "none":
        token = "eyJhbGciOiJub25lIn0." + token.split(".")[1] + "."
    facts = {one: f"https://a.example/{one}" for one in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
    answers: dict[str, Callable[[], dict[str, Any]]] = {
        "openid-configuration": lambda: facts | {"issuer": "https://a.example"},
        "jwks_uri": lambda: {"keys": [key.as_dict(private=False)]},
        "token_endpoint": lambda: {"id_token": token},
    }
    monkeypatch.setattr(oidc, "_ask", lambda address, *_: answers[address.rpartition("/")[2]]())
    settings = OidcSettings(issuer="https://a.example", client_id="console", console_url="https://c.example")
    provider, attempt = OidcProvider(settings, now_ms), SignInAttempt("s", "n", "v", "/")
    if why is None and signs == "own":
        assert provider.finish({"state": "s", "code": "c"}, attempt).name == "anna"
        return
    with pytest.raises(SignInFailed, match=why if why and signs == "own" else "cannot be used"):
        provider.finish({"state": "s", "code": "c"}, attempt)


def test_the_browser_proves_that_it_began_the_attempt(issuer: str) -> None:
    settings = OidcSettings(issuer=issuer, client_id="console", console_url="https://c.example")
    address, attempt = OidcProvider(settings, now_ms).begin("/")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert (asked["code_challenge_method"], asked["state"], asked["nonce"]) == ("S256", attempt.state, attempt.nonce)
    assert attempt.verifier not in address
