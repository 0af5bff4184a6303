"""Who may ask the console for what, and in which language it answers."""

from __future__ import annotations

import pytest

from reconsume.console.web.checks import host_is_allowed, is_from_another_site
from reconsume.console.web.rendering import choose_language


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        (host, True)
        for host in ("localhost", "localhost:15083", "LocalHost:1", "127.0.0.1:15083", "[::1]:15083", "[::1]")
    ]
    + [("console.example", True), ("CONSOLE.example:443", True)]
    + [
        (host, False)
        for host in ("", "evil.example", "localhost.evil.example:15083", "127.0.0.1.evil.example", "[::2]")
    ]
    + [(host, False) for host in ("evil.example:127.0.0.1", "console.example.evil", "[", "::1", "0.0.0.0:15083")],
)
def test_only_names_of_this_machine_or_its_proxy_are_answered(host: str, is_allowed: bool) -> None:
    assert host_is_allowed(host, ["Console.example"]) == is_allowed


@pytest.mark.parametrize(
    ("fetch_site", "origin", "is_foreign"),
    [
        ("same-origin", "null", False),
        ("same-origin", None, False),
        ("same-origin", "http://localhost:15083", False),
        ("none", None, False),
        (None, "http://localhost:15083", False),
        (None, "HTTP://LOCALHOST:15083", False),
        (None, "null", False),
        (None, None, False),
        ("cross-site", "null", True),
        ("same-site", "http://localhost:15083", True),
        ("cross-site", "http://localhost:15083", True),
        ("same-origin", "http://evil.example", True),
        (None, "http://evil.example", True),
        (None, "http://localhost:8091", True),
        (None, "http://[", True),
        ("", None, True),
    ],
)
def test_forms_of_other_sites(fetch_site: str | None, origin: str | None, is_foreign: bool) -> None:
    assert is_from_another_site(fetch_site, origin, "localhost:15083") == is_foreign


@pytest.mark.parametrize(
    ("asked", "kept", "accepted", "language"),
    [
        ("zh", "en", "en", "zh"),
        ("fr", "zh", "en", "zh"),
        (None, "fr", "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, None, "de, en;q=0.7, zh;q=0.9", "zh"),
        (None, None, "en, zh", "en"),
        (None, None, "zh;q=0, en;q=0.1", "en"),
        (None, None, "zh;q=x, fr", "en"),
        (None, None, "", "en"),
    ],
)
def test_the_language(asked: str | None, kept: str | None, accepted: str, language: str) -> None:
    assert choose_language(asked, kept, accepted) == language
