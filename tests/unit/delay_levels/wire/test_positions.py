"""Records of the POSITIONS topic, as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.positions import (
    StoredPosition,
    decode_position,
    encode_position,
    partition_of_key,
    position_key,
)

text = st.text(st.characters(codec="utf-8"))


@given(st.builds(StoredPosition, st.integers(0, 2**63 - 1), text, text, text))
def test_a_position_is_read_as_it_was_written(position: StoredPosition) -> None:
    assert decode_position(encode_position(position).encode()) == position


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1))
def test_a_key_is_read_as_it_was_written(topic: str, partition: int) -> None:
    assert partition_of_key(position_key(topic, partition).encode()) == (topic, partition)


def test_fields_of_later_versions_are_ignored() -> None:
    assert decode_position(b'{"offset":3,"more":[]}') == StoredPosition(3, "", "", "")


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"x", b"\xff", b"[1]", b"{}", b'{"offset":-1}', b'{"offset":"1"}', b'{"offset":true}'),
        *(b'{"offset":1e3}', b'{"offset":9223372036854775808}', b'{"offset":1,"topicId":2}', b"[" * 100_000),
    ],
)
def test_what_is_no_position_is_refused(value: bytes) -> None:
    with pytest.raises(MalformedProperty, match="value"):
        decode_position(value)


@pytest.mark.parametrize(
    "key", [None, b"", b"topic", b"/1", b"topic/", b"topic/-1", "topic/٣".encode(), b"t/99999999999", b"t/2147483648"]
)
def test_what_is_no_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedProperty, match="key"):
        partition_of_key(key)
