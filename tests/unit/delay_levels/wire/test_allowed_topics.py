from __future__ import annotations

import pytest

from reconsume.bridge.groups.groups import Groups
from reconsume.delay_levels.errors import IllegalName, IllegalSetting, TopicNotAllowed
from reconsume.delay_levels.wire.allowed_topics import decode_allowed, encode_allowed, is_allowed, require_allowed
from reconsume.delay_levels.wire.names import ALLOWED_TOPICS_KEY, check_group

KEY = ALLOWED_TOPICS_KEY.encode()


def test_a_pattern_matches_the_whole_name() -> None:
    assert is_allowed("orders.eu", ["payments", r"orders\..*"])
    assert not is_allowed("my-orders.eu", ["payments", r"orders\..*"])
    assert not is_allowed("orders", [])


def test_what_nobody_has_published_refuses_nothing() -> None:
    require_allowed("orders", None)
    require_allowed("orders", ["orders"])


@pytest.mark.parametrize(
    ("patterns", "now", "wanted"), [((), "empty", "orders"), (("a", "b.*"), r"'a', 'b\.\*'", r"'a b\.\* orders'")]
)
def test_the_refusal_names_topic_setting_and_way_out(patterns: tuple[str, ...], now: str, wanted: str) -> None:
    text = rf"topic 'orders': .* allowed_real_topics .* it is {now}; .* with RECONSUME_ALLOWED_REAL_TOPICS={wanted}$"
    with pytest.raises(TopicNotAllowed, match=text):
        require_allowed("orders", patterns)


@pytest.mark.parametrize(
    ("value", "why"), [(b"{", "not JSON"), (b"{}", "a list"), (b"[1]", "a list"), (b'["("]', "no.*regular expression")]
)
def test_a_record_that_cannot_be_read_changes_nothing_and_is_told(value: bytes, why: str) -> None:
    with pytest.raises(IllegalSetting, match=why.replace("no.*", "is not a ")):
        decode_allowed(value)
    groups = Groups().with_record(KEY, b'["a"]').with_record(KEY, value)
    assert groups.allowed_real_topics == ("a",)
    assert list(groups.unreadable) == [ALLOWED_TOPICS_KEY]
    assert groups.with_record(KEY, None) == Groups()


def test_the_record_is_no_group() -> None:
    groups = Groups().with_record(KEY, encode_allowed(["ü.*"]).encode())
    assert (groups.by_name, groups.allowed_real_topics) == ({}, ("ü.*",))
    with pytest.raises(IllegalName, match="is reserved; choose another name"):
        check_group(ALLOWED_TOPICS_KEY)
