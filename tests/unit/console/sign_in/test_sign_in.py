"""Who asks, what they may do, and what is not believed."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from reconsume.console.settings import AccessSettings, ConsoleSettings, ProxySettings
from reconsume.console.sign_in.access import ConsoleCaller, ConsoleRole, Grant, SignedIn, caller_of
from reconsume.console.sign_in.proxy import ProxySignIn
from reconsume.console.sign_in.signed import open_signed, sign
from reconsume.console.sign_in.tokens import Tokens, parse_tokens, same_secret
from reconsume.delay_levels.errors import IllegalSetting
from tests.support.consoles import Browser, basic
from tests.unit.console.fake_cluster import LETTERS, TOKEN, FakeCluster, letter, running_over, status_of_groups

ANNA, BERT, ZOYA = "anna-token-0123456789", "bert-token-0123456789", "зоя-token-01234567à"
KEY = b"0123456789abcdef0123456789abcdef"


def rule(role: str, *people: str, teams: Sequence[str] = (), groups: Sequence[str] = ("*",)) -> AccessSettings:
    return AccessSettings.model_validate({"role": role, "people": people, "teams": teams, "groups": groups})


def test_a_person_has_the_highest_role_of_all_rules_for_a_group() -> None:
    rules = [rule("viewer", "*"), rule("operator", teams=["sre"], groups=["billing-*"]), rule("admin", "anna")]
    anna = caller_of(SignedIn("anna"), rules, otherwise=None)
    bert = caller_of(SignedIn("bert", frozenset({"sre"})), rules, otherwise=None)
    assert anna.role_everywhere == ConsoleRole.ADMIN
    assert [bert.role_for(group) for group in ("billing-eu", "billing", "x")] == [
        ConsoleRole.OPERATOR,
        ConsoleRole.VIEWER,
        ConsoleRole.VIEWER,
    ]
    assert [bert.may(role, "billing-eu") for role in ConsoleRole] == [True, True, False]
    assert not bert.may(ConsoleRole.OPERATOR, None), "not for the installation as a whole"
    carl = caller_of(SignedIn("carl"), rules[1:], otherwise=None)
    assert (carl.highest_role, carl.visible(["billing-eu"])) == (None, [])
    assert caller_of(SignedIn("dora"), [], otherwise=ConsoleRole.ADMIN) == ConsoleCaller(
        "dora", (Grant(ConsoleRole.ADMIN, ("*",)),)
    )


@pytest.mark.parametrize(
    ("authorization", "name"),
    [
        (basic("whatever", ANNA)["authorization"], "anna"),
        (basic("bert", ANNA)["authorization"], "anna"),
        (f"Bearer {BERT}", "bert"),
        (f"bearer  {BERT} ", "bert"),
        (f"Bearer {ZOYA}".encode().decode("latin-1"), "zoya"),
        (basic("anna", ANNA[:-1])["authorization"], None),
        (basic("anna", "")["authorization"], None),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), None),
        ("Basic !!", None),
        ("Bearer é", None),
        ("Bearer ", None),
        ("", None),
    ],
)
def test_the_token_tells_who_asks_whatever_name_is_typed(authorization: str, name: str | None) -> None:
    assert Tokens({"anna": ANNA, "bert": BERT, "zoya": ZOYA}).name_of(authorization) == name


def test_a_secret_may_be_compared_with_anything() -> None:
    assert same_secret("a", "a")
    assert not same_secret("\udcff", "a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("anna short", "line 1: write a name"),
        ("# people\n\nanna", "line 3: write a name"),
        (f"anna {ANNA}\nanna {BERT}", "line 2: name or token is already in use"),
        (f"anna {ANNA}\nbert {ANNA}", "line 2: name or token is already in use"),
        (f"token {ANNA}", "line 1: name or token is already in use"),
        (f"an\x1bna {ANNA}", "line 1: write a name"),
        ("# nobody", "is empty; write a line"),
    ],
)
def test_tokens_that_cannot_be_used(text: str, why: str) -> None:
    with pytest.raises(IllegalSetting, match=why):
        parse_tokens(None if "nobody" in text else TOKEN, text)


@pytest.mark.parametrize(
    ("peer", "headers", "expected"),
    [
        ("10.1.2.3", {"x-user": "anna", "x-teams": "sre, dev"}, SignedIn("anna", frozenset({"sre", "dev"}))),
        ("::ffff:10.1.2.3", {"x-user": "anna"}, SignedIn("anna")),
        ("10.2.0.1", {"x-user": "anna"}, None),
        (None, {"x-user": "anna"}, None),
        ("10.1.2.3", {"x-user": " "}, None),
        ("10.1.2.3", {}, None),
    ],
)
def test_only_a_proxy_is_believed(peer: str | None, headers: dict[str, str], expected: SignedIn | None) -> None:
    settings = ProxySettings(addresses=["10.1.0.0/16"], user_header="X-User", teams_header="X-Teams")
    assert ProxySignIn(settings).identity_of(peer, headers) == expected


@pytest.mark.parametrize(
    ("name", "teams", "expected"),
    [
        ("张三".encode(), "运维,sre".encode(), SignedIn("张三", frozenset({"运维", "sre"}))),
        ("一".encode(), b"", SignedIn("一")),
        ("丁".encode(), b"", SignedIn("丁")),
        ("voilà".encode(), "là".encode(), SignedIn("voilà", frozenset({"là"}))),  # its last byte is Latin-1's space
        (b"J\xfcrgen", b"S\xfcd", SignedIn("Jürgen", frozenset({"Süd"}))),
    ],
)
def test_a_proxy_names_people_in_any_script(name: bytes, teams: bytes, expected: SignedIn) -> None:
    settings = ProxySettings(addresses=["10.1.0.0/16"])
    headers = Headers(raw=[(b"x-forwarded-user", name), (b"x-forwarded-groups", teams)])
    assert ProxySignIn(settings).identity_of("10.1.2.3", headers) == expected


def test_what_was_signed_is_believed_for_its_purpose_and_time() -> None:
    text = sign(KEY, "session", {"name": "anna"}, 1_000)
    assert open_signed(KEY, "session", text, 999) == {"name": "anna"}
    body, _, mac = text.partition(".")
    other = base64.urlsafe_b64encode(b'[{"name":"root"},1000]').decode()
    for shown in ("", ".", text[:-1], f"{other}.{mac}", f"{body}.", "é.é"):
        assert open_signed(KEY, "session", shown, 0) is None
    assert open_signed(KEY, "attempt", text, 0) is None
    assert open_signed(b"another", "session", text, 0) is None
    assert open_signed(KEY, "session", text, 1_000) is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"proxy": {"addresses": ["10.0.0.0/8"]}}, "console.access is not"),
        ({"proxy": {"addresses": ["x"]}, "access": [{"role": "viewer"}]}, "'x' is not an address or network"),
        (
            {"oidc": {"issuer": "http://a.example", "client_id": "a", "console_url": "https://b"}},
            "must begin with https://",
        ),
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises((IllegalSetting, ValueError), match=why):
        ConsoleSettings.model_validate(settings)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"anna {ANNA}\nbert {BERT}\n")
    return file


def test_roles_and_scope_hold_for_every_page(tokens: Path) -> None:
    cluster = FakeCluster(
        report=status_of_groups(departures=1, billing=1), letters={"departures": [letter(1)], "billing": [letter(1)]}
    )
    access = [
        {"role": "operator", "people": ["anna"], "groups": ["departures"]},
        {"role": "viewer", "people": ["bert"]},
    ]
    with running_over(cluster, tokens_file=tokens, access=access) as browser:
        anna, bert = (Browser(browser.address, headers=basic("x", token)) for token in (ANNA, BERT))
        assert browser.get("/").status == 401
        assert ("departures" in anna.get("/").seen.words, "billing" in anna.get("/").seen.words) == (True, False)
        assert [anna.get(f"/groups/billing{path}").status for path in ("", "/dead-letters", "/dead-letters/0/1")] == [
            *(403, 403, 403)
        ]
        assert "PUL1545" in anna.get(LETTERS).text
        assert "PUL1545" not in bert.get(LETTERS).text
        assert '"flight"' not in bert.get(LETTERS + "/0/1").seen.words
        assert [form.action for form in bert.get(LETTERS + "/0/1").seen.forms] == []
        plan = anna.send(anna.get(LETTERS).seen.form("/job"), ("place", "0/1")).seen.form("/jobs")
        assert bert.send(plan).status == 403, "the form is anna's"
        assert cluster.jobs == {}
        assert anna.send(plan).status == 303
        assert [one.spec.by for one in cluster.jobs.values()] == ["anna"], "not what was typed"
        for path in ("jobs", "job", "retries", "resolve"):
            assert anna.send(plan._replace(action=f"/groups/billing/{path}")).status == 403
        assert bert.get(LETTERS + "/0/1/edit").status == 403


def test_the_proxy_tells_who_asks(tokens: Path) -> None:
    access = [{"role": "operator", "teams": ["sre"]}]
    cluster = FakeCluster(letters={"departures": [letter(1)]})
    proxy = {"addresses": ["127.0.0.1"]}
    with running_over(cluster, proxy=proxy, access=access, tokens_file=tokens) as browser:
        assert browser.get("/").status == 401
        assert browser.get("/", x_forwarded_user="carl").status == 403
        browser.headers = {"x-forwarded-user": "carl", "x-forwarded-groups": "dev,sre"}
        form = browser.get(LETTERS).seen.form("/job")
        browser.send(browser.send(form, ("place", "0/1")).seen.form("/jobs"))
        assert [one.spec.by for one in cluster.jobs.values()] == ["carl"]
    with running_over(cluster, proxy={"addresses": ["10.0.0.1"]}, access=access) as browser:
        browser.headers = {"x-forwarded-user": "carl", "x-forwarded-groups": "sre"}
        assert browser.get("/").status == 401, "the headers come from elsewhere"
