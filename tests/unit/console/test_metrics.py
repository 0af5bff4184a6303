"""The age of open dead letters, as scrapes see it."""

from __future__ import annotations

from collections import UserDict

from prometheus_client import CollectorRegistry

from reconsume.console.metrics import ConsoleMetrics


def test_a_scrape_between_two_groups_misses_none() -> None:
    """An alert that misses its series for one scrape resolves, and begins its wait again."""
    metrics, scraped = ConsoleMetrics(CollectorRegistry()), list[float | None]()

    def oldest(group: str) -> float | None:
        name = "reconsume_oldest_open_dead_letter_timestamp_seconds"
        return metrics.registry.get_sample_value(name, {"group": group})

    class Scraped(UserDict[str, int]):
        def __getitem__(self, group: str) -> int:
            scraped.append(oldest("b"))
            return super().__getitem__(group)

    metrics.tell_oldest_open({"a": 1_000, "b": 2_000})
    metrics.tell_oldest_open(Scraped({"a": 3_000, "b": 4_000}))
    assert scraped == [2.0, 2.0]
    assert (oldest("a"), oldest("b")) == (3.0, 4.0)
    metrics.tell_oldest_open({"a": 3_000})
    assert (oldest("a"), oldest("b")) == (3.0, None)
