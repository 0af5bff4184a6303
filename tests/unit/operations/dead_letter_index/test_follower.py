"""The follower of dead letters, with a Kafka in which nothing happens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from tests.unit.operations.dead_letter_index.test_store import TOPIC

STATES = "reconsume.DEAD_LETTERS"


class _Admin:
    """A Kafka with a dead-letter topic whose records were deleted."""

    def topics(self) -> dict[str, int]:
        return {TOPIC: 1, STATES: 1}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def end_offsets(self, asked: Iterable[tuple[str, int]], **_: bool) -> dict[tuple[str, int], int]:
        return dict.fromkeys(asked, 3)


def test_a_look_without_news_leaves_the_store_unchanged() -> None:
    cluster: Any = Cluster(Settings(bootstrap_servers="127.0.0.1:9"))
    cluster.__dict__["admin"] = _Admin()
    with DeadLetterStore() as store:
        index = DeadLetterIndex(cluster, store, CauseLabels())
        index.look()
        assert store.progress() == {(TOPIC, 0): ("id", 3), (STATES, 0): ("id", 3)}
        changes = store.changes
        index.look()
        assert store.changes == changes
