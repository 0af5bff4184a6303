"""Properties that are computed once."""

from __future__ import annotations

import threading

from reconsume.consumers.message import lazy
from tests.support.waiting import PATIENCE


class Counted:
    """Waits for its gate before it is computed."""

    def __init__(self) -> None:
        self.computed = 0
        self.gate = threading.Event()

    @lazy
    def value(self) -> list[int]:
        """Which one."""
        self.computed += 1
        assert self.gate.wait(PATIENCE)
        return [self.computed]


def test_it_is_computed_once() -> None:
    one = Counted()
    one.gate.set()
    assert one.value is one.value
    assert one.computed == 1


def test_one_that_takes_long_holds_up_no_other_object() -> None:
    slow, quick = Counted(), Counted()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    quick.gate.set()
    assert quick.value == [1]  # it would hang here
    slow.gate.set()
    thread.join()


def test_the_class_shows_what_it_is() -> None:
    assert Counted.value.__doc__ == "Which one."
