"""How long topics have been missing in the lists of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class MissingTopics:
    """Counts for each topic the looks in a row that lacked it: a broker that has just started may list none.

    Tests: tests/unit/consumers/subscriptions/test_matching_topics.py, tests/unit/consumers/broadcasting,
    tests/integration/operations/test_dead_letter_index.py.
    """

    def __init__(self) -> None:
        self._looks: Mapping[str, int] = {}

    def look(self, missing: Iterable[str]) -> Mapping[str, int]:
        """Note what a look lacked; return by topic how many looks in a row have lacked it."""
        before = self._looks
        self._looks = {topic: before.get(topic, 0) + 1 for topic in missing}
        return self._looks
