"""Foreign text is harmless where people look at it, and nothing of it is lost."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from reconsume.delay_levels.human_text import counted, json_text, visible

HARMLESS = "ASCII, 中文, ü, emoji \U0001f600, spaces\u00a0\u3000, a tab\t, [brackets], \\ and both ends of lines\n\r\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HARMLESS, HARMLESS),
        ("\x1b]52;c;aGk=\x07", "\\u001b]52;c;aGk=\\u0007"),
        ("C1: \x9b31m", "C1: \\u009b31m"),
        ("\x7f\x08\x00", "\\u007f\\b\\u0000"),
        ("real\rforged", "real\\rforged"),
        ("\u202egpj.exe\u200b", "\\u202egpj.exe\\u200b"),
        ("\u2028\ud800\U000e0041", "\\u2028\\ud800\\udb40\\udc41"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_character_that_unicode_has_is_a_control_or_hidden_afterwards() -> None:
    text = visible("".join(map(chr, range(sys.maxunicode + 1))))
    left = {one for one in set(text) if unicodedata.category(one) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}}
    assert left <= {"\n", "\t"}


def test_json_keeps_its_value() -> None:
    value = {"\x1b[31m": ["\u202e\x9b\x7f\ud800\U000e0041", HARMLESS, None, 1.5]}
    for how in ({}, {"indent": 2}):
        text = json_text(value, **how)
        assert json.loads(text) == value
        assert visible(text) == text
    assert "中文" in json_text(value)


@pytest.mark.parametrize(
    ("number", "words", "shown"),
    [
        (1, ("problem",), "1 problem"),
        (0, ("problem",), "0 problems"),
        (1_000, ("batch", "batches"), "1,000 batches"),
        (1, ("retry", "retries"), "1 retry"),
    ],
)
def test_a_noun_goes_with_its_number(number: int, words: tuple[str, ...], shown: str) -> None:
    assert counted(number, *words) == shown
