"""Topics that match a pattern, as brokers list them; one that has just started may list none."""

from __future__ import annotations

from reconsume.consumers.subscriptions.pattern_consumer import MatchingTopics


def test_a_topic_is_given_up_when_several_looks_in_a_row_lack_it() -> None:
    lists = [["a", "b"], [], ["b"], ["a", "b"], ["b"], ["b"], ["b"], ["b", "c"]]
    look = MatchingTopics(lambda: lists.pop(0))
    assert [look() for _ in range(8)] == [["a", "b"]] * 6 + [["b"], ["b", "c"]]


def test_one_that_comes_again_is_found_at_once() -> None:
    lists = [["a"], [], [], [], ["a"]]
    look = MatchingTopics(lambda: lists.pop(0))
    assert [look() for _ in range(5)] == [["a"], ["a"], ["a"], [], ["a"]]
