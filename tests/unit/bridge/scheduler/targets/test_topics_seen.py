"""A producer is replaced when its search for topics costs more than a new one."""

from __future__ import annotations

from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.bridge.scheduler.targets.topics_seen import TopicsSeen


def batch(topics: range, records: int = 5_000) -> list[Delivery]:
    return [
        Delivery(f"t{topics[number % len(topics)]}", 0, None, b"v", [], "delivered", "g") for number in range(records)
    ]


def replaced(seen: TopicsSeen, topics: range, batches: int) -> int:
    one = batch(topics)
    return sum(seen.are_too_many(one) for _ in range(batches))


def test_a_producer_that_few_of_its_topics_are_used_of_is_replaced_once() -> None:
    seen = TopicsSeen()
    assert replaced(seen, range(5_000), 1) == 0
    assert replaced(seen, range(50), 20) == 1


def test_a_producer_is_kept_while_it_uses_most_of_its_topics_or_has_seen_few() -> None:
    assert replaced(TopicsSeen(), range(5_000), 20) == 0
    assert replaced(TopicsSeen(), range(900), 100) == 0


def test_a_producer_with_little_to_do_is_kept() -> None:
    seen = TopicsSeen()
    seen.are_too_many(batch(range(5_000)))
    few = batch(range(50), 10)
    assert not any(seen.are_too_many(few) for _ in range(100))
