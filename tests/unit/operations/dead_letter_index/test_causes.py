"""Labels of causes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.dead_letter_index.causes import UNKNOWN_CAUSE, CauseLabels


@pytest.mark.parametrize(
    ("exception_class", "cause", "label"),
    [
        (None, None, UNKNOWN_CAUSE),
        ("TimeoutError", None, "TimeoutError"),
        ("builtins.TimeoutError", "no answer within 30 s", "TimeoutError: no answer within <n> s"),
        ("KeyError", "'tail number'", "KeyError: 'tail number'"),
        (None, "order 4711 of 2026-11-24 failed", "order <n> of <n> failed"),
        (None, "3f2504e0-4f89-11d3-9a0c-0305e82c3301 is unknown", "<id> is unknown"),
        (None, "trace 4bf92f3577b34da6a3ce929d0e0e4736", "trace <id>"),
        (None, "GET https://api.example.com/v1/7?x=1: 503", "GET <url> <n>"),
        (None, "refused by 10.0.0.7:5432", "refused by <host>"),
        (None, "connect db-3.prod.internal:5432", "connect <host>"),
        (None, "no route to gate-1.airport.example.com", "no route to <host>"),
        (None, "mail to ada@example.com bounced", "mail to <address> bounced"),
        (None, "first line 1\nsecond line", "first line <n>"),
        (None, "of utf8 and sha256", "of utf<n> and sha<n>"),
    ],
)
def test_what_differs_from_message_to_message_is_left_out(
    exception_class: str | None, cause: str | None, label: str
) -> None:
    assert CauseLabels().label(exception_class, cause) == label


def test_the_first_rule_that_is_found_counts() -> None:
    labels = CauseLabels({"(?i)timeout|timed out": "slow partner", "partner": "partner"})
    assert labels.label("TimeoutError", "partner") == "slow partner"
    assert labels.label(None, "the partner Timed Out") == "slow partner"
    assert labels.label(None, "the partner said 7") == "partner"
    assert labels.label(None, "said 7") == "said <n>"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"(": "a"}, "not a regular expression"),
        ({"a{99999999999999999999}": "a"}, "not a regular expression"),
        ({"a": " "}, "the label of 'a' is blank"),
    ],
)
def test_rules_that_cannot_work_are_refused(rules: dict[str, str], said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        CauseLabels(rules)


@given(some.none() | some.text(max_size=300), some.none() | some.text(max_size=3_000))
def test_any_cause_has_a_short_label(exception_class: str | None, cause: str | None) -> None:
    assert 0 < len(CauseLabels().label(exception_class, cause)) <= 120


@pytest.mark.parametrize("hostile", ["a." * 5_000, "1." * 5_000, "-" * 10_000, "a@" * 5_000, "f" * 10_000 + "g"])
def test_a_cause_that_is_made_to_be_slow_has_a_label_too(hostile: str) -> None:
    assert CauseLabels().label(None, hostile)
