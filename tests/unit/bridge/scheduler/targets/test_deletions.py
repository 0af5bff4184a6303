"""A deleted topic is made again, but not under consumers that would go on at the old one's offsets."""

from __future__ import annotations

import pytest

from reconsume.bridge.scheduler.targets.deletions import DeletedTopics
from reconsume.delay_levels.errors import KafkaNotReachable

TOPIC = "reconsume.DELAY.10s"


class Bench:
    def __init__(self) -> None:
        self.now = 0.0
        self.deletions = DeletedTopics(lambda: self.now)

    def may_be_made(self, at_ms: float) -> bool:
        self.now = at_ms
        try:
            self.deletions.missed(TOPIC)
        except KafkaNotReachable:
            return False
        return True


def test_a_topic_that_never_was_is_made_at_once() -> None:
    assert Bench().may_be_made(0)


def test_one_that_was_deleted_is_made_when_its_readers_have_noticed() -> None:
    bench = Bench()
    bench.deletions.saw(TOPIC)
    assert [bench.may_be_made(at) for at in (1_000, 5_000, 20_999, 21_000)] == [False, False, False, True]


def test_one_that_is_there_after_all_was_not_deleted() -> None:
    """A broker that lags behind may not know a new topic for a moment."""
    bench = Bench()
    bench.deletions.saw(TOPIC)
    assert not bench.may_be_made(1_000)
    bench.deletions.saw(TOPIC)
    assert not bench.may_be_made(25_000)


def test_the_error_says_how_long_it_takes() -> None:
    bench = Bench()
    bench.deletions.saw(TOPIC)
    bench.may_be_made(0)
    bench.now = 8_000
    with pytest.raises(
        KafkaNotReachable, match=r"topic reconsume\.DELAY\.10s was deleted; it is created again in 12 s"
    ):
        bench.deletions.missed(TOPIC)
