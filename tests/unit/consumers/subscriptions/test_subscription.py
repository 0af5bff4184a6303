"""Tag expressions."""

from __future__ import annotations

import pytest

from reconsume.consumers.subscriptions.subscription import TagExpression
from reconsume.delay_levels.errors import IllegalSetting


@pytest.mark.rule("TF-03")
@pytest.mark.parametrize("expression", [None, "", "  ", "*", " * "])
def test_nothing_and_a_star_mean_all(expression: str | None) -> None:
    wanted = TagExpression.parse(expression)
    assert wanted.tags is None
    assert wanted.wants("late")
    assert wanted.wants(None)


@pytest.mark.rule("TF-03")
@pytest.mark.parametrize("expression", ["late||lost", " late || lost ", "|| late ||  || lost||"])
def test_tags_are_parted_by_two_bars_and_trimmed(expression: str) -> None:
    assert TagExpression.parse(expression).tags == frozenset({"late", "lost"})


@pytest.mark.rule("TF-03")
def test_a_message_without_a_tag_never_matches_a_tag() -> None:
    assert not TagExpression.parse("late").wants(None)
    assert not TagExpression.parse("late").wants("")


@pytest.mark.rule("TF-01", "TF-02")
def test_only_the_exact_tag_matches_never_one_of_the_same_hash() -> None:
    """Java's hashCode of "Aa" and of "BB" is 2112; RocketMQ's broker cannot tell them apart, its client can."""
    wanted = TagExpression.parse("Aa")
    assert wanted.wants("Aa")
    assert not any(wanted.wants(tag) for tag in ("BB", "aa", "Aa ", "A"))


@pytest.mark.rule("TF-03")
@pytest.mark.parametrize("expression", ["||", " || || "])
def test_an_expression_without_any_tag_is_refused(expression: str) -> None:
    with pytest.raises(IllegalSetting, match=r"has no tags; write 'TagA \|\| TagB', or '\*' for all"):
        TagExpression.parse(expression)


@pytest.mark.rule("TF-03")
def test_a_star_among_tags_is_a_tag() -> None:
    assert TagExpression.parse("late || *").tags == frozenset({"late", "*"})
