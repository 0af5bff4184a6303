from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconsume.bridge.process.settings import load_settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.guarding.callers import ANYBODY, Caller
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.settings import ProcessSettings

OPERATOR, SHOP, AIR = (f"{name}-0123456789abcdef" for name in ("operator", "shop", "air"))
OWN = "reconsume."


def settings(file: Path, text: str) -> ProcessSettings:
    file.write_text(text)
    return load_settings(ProcessSettings, file, {}, None)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    for name, token in (("operator", OPERATOR), ("shop", SHOP), ("air", AIR), ("short", "x")):
        (tmp_path / name).write_text(token + "\n")
    return tmp_path


def test_tokens_of_a_settings_file_open_what_it_says(secrets: Path) -> None:
    found = settings(
        secrets / "sidecar.yaml",
        f"""
sidecar:
  listen: {{host: 0.0.0.0}}
  token_file: {secrets}/operator
  callers:
    shop: {{token_file: {secrets}/shop, groups: [carts, shop-*], topics: [orders, "shop.*"]}}
    air: {{token_file: {secrets}/air, groups: [departures]}}
""",
    ).sidecar.read_callers()
    assert found.of(f"Bearer {OPERATOR}".encode()) is ANYBODY
    assert found.of(b"Bearer nothing") is None
    shop, air = (found.of(f"bearer {token}".encode()) for token in (SHOP, AIR))
    assert (shop, air) == (Caller("shop", ["carts", "shop-*"], ["orders", "shop.*"]), Caller("air", ["departures"], []))


def test_without_a_token_for_all_only_callers_are_let_in(secrets: Path) -> None:
    text = f"sidecar: {{listen: {{host: 0.0.0.0}}, callers: {{shop: {{token_file: {secrets}/shop}}}}}}"
    found = settings(secrets / "sidecar.yaml", text).sidecar
    assert (found.read_token(), found.read_callers().of(b"")) == (None, None)


@pytest.mark.parametrize(
    ("callers", "why"),
    [
        ("{shop: {groups: [a]}}", r"sidecar\.callers\.shop .*: a caller needs exactly one token"),
        ("{shop: {token: a, token_file: b}}", r"sidecar\.callers\.shop .*a caller needs exactly one token"),
        ("{shop: {token_file: FOLDER/none}}", r"sidecar\.callers\.shop\.token_file.*cannot be read"),
        ("{shop: {token_file: FOLDER/short}}", r"sidecar\.callers\.shop\.token_file.*at least 16 characters"),
        (
            "{a: {token_file: FOLDER/shop}, b: {token_file: FOLDER/shop}}",
            r"sidecar\.callers\.b: another caller has the same token",
        ),
        ("{shop: {token_file: FOLDER/shop, groups: [a*b]}}", r"sidecar\.callers\.shop\.groups .*'a\*b'"),
        ("{shop: {token_file: FOLDER/shop, topics: ['']}}", r"sidecar\.callers\.shop\.topics .*''"),
        ("{shop: {token_file: FOLDER/shop, group: [a]}}", r"sidecar\.callers\.shop\.group .*unknown setting"),
    ],
)
def test_callers_that_cannot_be_are_told_with_their_name(secrets: Path, callers: str, why: str) -> None:
    with pytest.raises(IllegalSetting, match=why) as told:
        settings(
            secrets / "s.yaml", f"sidecar: {{callers: {callers.replace('FOLDER', str(secrets))}}}"
        ).sidecar.read_callers()
    assert SHOP not in str(told.value)


def refusal(check: Any, *arguments: str) -> str | None:
    try:
        check(*arguments)
    except Problem as problem:
        return f"{problem.status} {problem.kind}: {problem.detail}"
    return None


def test_names_and_beginnings_of_names() -> None:
    shop = Caller("shop", ["carts", "shop-*", "a.b"], ["orders", "shop.*"])
    groups = {name: refusal(shop.require_group, name) is None for name in ("carts", "carts2", "shop-", "shop-x", "aXb")}
    assert groups == {"carts": True, "carts2": False, "shop-": True, "shop-x": True, "aXb": False}
    topics = {name: refusal(shop.require_topic, name, OWN) is None for name in ("orders", "shop.eu", "shop", "flights")}
    assert topics == {"orders": True, "shop.eu": True, "shop": False, "flights": False}


def test_no_pattern_opens_topics_of_reconsume_which_hold_records_of_all_groups() -> None:
    every = Caller("every", ["*"], ["*", "reconsume.DLQ.other"])
    assert refusal(every.require_topic, "flights", OWN) is None
    for topic in ("reconsume.DLQ.other", "reconsume.RETRY.other", "reconsume.DELAY.0s"):
        assert refusal(every.require_topic, topic, OWN) is not None
    assert refusal(ANYBODY.require_topic, "reconsume.DLQ.other", OWN) is None


def test_the_refusal_says_whose_token_opens_what() -> None:
    shop = Caller("shop", ["carts", "shop-*"], [])
    assert refusal(shop.require_group, "departures") == (
        "403 token-not-allowed: group 'departures': the token of shop opens the groups carts, shop-*; the operator of "
        "the sidecar adds others to sidecar.callers.shop.groups"
    )
    assert "opens the topics (none);" in str(refusal(shop.require_topic, "flights", OWN))


def test_a_body_that_would_never_have_room_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(
        IllegalSetting, match=r"memory_mib 128 has no room .* body_mib 64 and its records; set it to 475 or more"
    ):
        settings(tmp_path / "s.yaml", "sidecar: {limits: {body_mib: 64}}")
    found = settings(tmp_path / "s.yaml", "sidecar: {limits: {body_mib: 64, memory_mib: 475}}")
    assert found.sidecar.limits.body_mib == 64
