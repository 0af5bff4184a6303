"""Faults for a copy of a history. Each takes a message of its own, so that all of them fit into one copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.spark.histories.copies import Copied, Copy

__all__ = ["DEAD", "FAULTS", "Fault", "Scene", "Wrong", "broken"]

Wrong = tuple[str, str | None, str | None, int | None]
"""A finding: kind, group, origin message id and attempt; no id where the record has lost it."""

DEAD: Final = 3
"""The attempt of a message of `lived` that is its dead letter."""


@dataclass
class Scene:
    """A copy, and the messages in it that no fault has touched yet.

    Attributes:
        group: in which the faults are.
        other: another group, which failed at the same messages.
        untouched: values of messages.
    """

    copy: Copy
    group: str
    other: str
    untouched: list[bytes]

    def sent(self, attempt: int) -> Copied:
        """The delay record of this attempt of a message that nothing else touches."""
        dead = set(self._values(DEAD))
        # Of those that die there are few: the other faults leave them alone.
        value = next(one for one in self._values(attempt) if one in self.untouched and (one in dead) == (attempt == 3))
        self.untouched.remove(value)
        return next(one for one in self._of_group(attempt) if one.value == value)

    def back(self, sent: Copied) -> Copied:
        """What the scheduler made of it."""
        return self.copy.one("DLQ." if sent["REAL_TOPIC"].startswith("%DLQ%") else "RETRY.", *sent.attempt)

    def retry_topic_of_the_other(self) -> str:
        return self.copy.of("RETRY.", where=lambda one: one.attempt[0] == self.other)[0].topic

    def _values(self, attempt: int) -> list[bytes]:
        return [one.value or b"" for one in self._of_group(attempt)]

    def _of_group(self, attempt: int) -> list[Copied]:
        return self.copy.of("DELAY.", where=lambda one: (one.attempt[0], one.attempt[2]) == (self.group, attempt))


Fault = Callable[[Scene], Wrong]


def broken(copy: Copy, group: str, other: str) -> tuple[Copy, dict[str, Wrong]]:
    """A copy with every fault in it, and what must be found, by the fault's name."""
    scene = Scene(Copy(copy.partitions, list(copy.records)), group, other, [])
    scene.untouched = [one.value or b"" for one in scene.copy.of("DELAY.") if one.attempt[0] == group]
    # The last record of its partition, so nothing says that a scheduler has gone past it.
    last = scene.copy.of("DELAY.2s")[-1]
    its_delivery = scene.back(last)
    scene.untouched = [value for value in dict.fromkeys(scene.untouched) if value != last.value]
    wrong = {fault.__name__: fault(scene) for fault in FAULTS}
    scene.copy.records.remove(its_delivery)
    return scene.copy, wrong | {"waits_past_its_time": ("OVERDUE", *last.attempt)}


def never_delivered(scene: Scene) -> Wrong:
    sent = scene.sent(1)
    scene.copy.records.remove(scene.back(sent))
    return ("LOST", *sent.attempt)


def delivered_twice(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry, retry.changed(later_ms=3))
    return ("DUPLICATE", *retry.attempt)


def dead_twice(scene: Scene) -> Wrong:
    dead = scene.back(scene.sent(DEAD))
    scene.copy.swap(dead, dead, dead.changed(later_ms=3))
    return ("DUPLICATE", *dead.attempt)


def delivered_early(scene: Scene) -> Wrong:
    sent = scene.sent(1)
    retry = scene.back(sent)
    scene.copy.swap(retry, retry.changed(later_ms=sent.timestamp + 900 - retry.timestamp))
    return ("EARLY", *sent.attempt)


def delivered_late(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry.changed(later_ms=120_000))
    return ("LATE", *retry.attempt)


def waits_on_another_level(scene: Scene) -> Wrong:
    sent = scene.sent(1)
    retry = scene.back(sent)
    # First on that topic, where it cannot make what waits there look handled.
    scene.copy.records.remove(sent)
    scene.copy.records.insert(0, sent.changed(topic="DELAY.2s"))
    scene.copy.swap(retry, retry.changed(later_ms=1_000))
    return ("WRONG_LEVEL", *sent.attempt)


def comes_with_another_level(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry.changed(DELAY=b"2"))
    return ("WRONG_LEVEL", *retry.attempt)


def dead_letter_waits(scene: Scene) -> Wrong:
    sent = scene.sent(DEAD)
    dead = scene.back(sent)
    scene.copy.swap(sent, sent.changed(topic="DELAY.1s"))
    scene.copy.swap(dead, dead.changed(later_ms=1_000))
    return ("WRONG_LEVEL", *sent.attempt)


def on_the_topic_of_another_group(scene: Scene) -> Wrong:
    """Which has not failed at this message."""
    retry = scene.back(scene.sent(1))
    same = [scene.other, *retry.attempt[1:]]
    scene.copy.records = [one for one in scene.copy.records if not one["RECONSUME_TIME"] or list(one.attempt) != same]
    scene.copy.swap(retry, retry.changed(topic=scene.retry_topic_of_the_other()))
    return ("WRONG_GROUP", *retry.attempt)


def on_the_topic_of_a_group_that_has_it_too(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry.changed(topic=scene.retry_topic_of_the_other()))
    return ("WRONG_GROUP", *retry.attempt)


def renamed_to_another_group(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    name = f"%RETRY%{scene.other}".encode()
    scene.copy.swap(retry, retry.changed(topic=scene.retry_topic_of_the_other(), REAL_TOPIC=name))
    return ("WRONG_GROUP", *retry.attempt)


def counted_too_low(scene: Scene) -> Wrong:
    sent = scene.sent(DEAD)
    dead = scene.back(sent)
    scene.copy.swap(dead, dead.changed(RECONSUME_TIME=b"1"))
    return ("WRONG_COUNT", *sent.attempt)


def told_too_low(scene: Scene) -> Wrong:
    dead = scene.back(scene.sent(DEAD))
    scene.copy.swap(dead, dead.changed({"__dlq.errors.delivery.count": b"2"}))
    return ("WRONG_COUNT", *dead.attempt)


def counted_too_low_from_the_start(scene: Scene) -> Wrong:
    sent = scene.sent(DEAD)
    for one in (sent, scene.back(sent)):
        scene.copy.swap(one, one.changed({"__dlq.errors.delivery.count": b"1"}, RECONSUME_TIME=b"1"))
    return ("WRONG_COUNT", sent.attempt[0], sent.attempt[1], 1)


def from_nowhere(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry, retry.changed(ORIGIN_MESSAGE_ID=b"never/0/1"))
    return ("ORPHAN", scene.group, "never/0/1", 1)


def garbage_in_a_retry(scene: Scene) -> Wrong:
    retry = scene.back(scene.sent(1))
    scene.copy.swap(retry, retry.changed(RECONSUME_TIME=b"\xff\x00"))
    return ("DAMAGED", *retry.attempt)


def garbage_in_an_origin(scene: Scene) -> Wrong:
    sent = scene.sent(1)
    scene.copy.swap(sent, sent.changed(ORIGIN_MESSAGE_ID=b"\xc3("))
    return ("DAMAGED", scene.group, None, 1)


def garbage_beside_the_name(scene: Scene) -> Wrong:
    dead = scene.back(scene.sent(DEAD))
    scene.copy.swap(dead, dead.changed(BORN_TIMESTAMP=b"yesterday"))
    return ("DAMAGED", *dead.attempt)


FAULTS: Final[list[Fault]] = [
    *(never_delivered, delivered_twice, dead_twice, delivered_early, delivered_late, waits_on_another_level),
    *(comes_with_another_level, dead_letter_waits, on_the_topic_of_another_group),
    *(on_the_topic_of_a_group_that_has_it_too, renamed_to_another_group, counted_too_low, told_too_low),
    *(counted_too_low_from_the_start, from_nowhere, garbage_beside_the_name, garbage_in_a_retry, garbage_in_an_origin),
]
"""Garbage last: nobody can look up by its attempt what has lost it."""
