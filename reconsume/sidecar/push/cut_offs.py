"""Messages whose requests end without an answer: the app went away, or the message ends it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["CutOffs"]

_SENT_ALONE_AFTER: Final = 2
_ATTEMPT_AFTER: Final = 2
_MOST: Final = 1_000


@dataclass(slots=True)
class _Seen:
    """What is known of one message.

    Attributes:
        times: how often it was cut off.
        counted: how often alone, with another request answered since the time before.
        answers: the app's answers until it was last cut off.
    """

    times: int = 0
    counted: int = 0
    answers: int = 0


class CutOffs:
    """Tells a message that ends the app from one that was with the app when it ended; one cut-off cannot.

    Guarantees:
        1. A message that was cut off twice is sent alone from then on.
        2. One that is then cut off alone twice more, each time after the app has answered another request, is a failed
           attempt; after that each further time is one.
        3. An app that answers nothing between two cut-offs counts against no message.
    Tests: tests/unit/sidecar/push/test_app_gate.py, tests/integration/test_push_poison.py.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._answers = 0

    def __bool__(self) -> bool:
        return bool(self._seen)

    def goes_alone(self, message_id: str) -> bool:
        """Whether nothing else may be with the app while this message is."""
        seen = self._seen.get(message_id)
        return seen is not None and seen.times >= _SENT_ALONE_AFTER

    def yields(self, message_id: str) -> bool:
        """Whether another message should try the app first: this one can tell nothing before an answer to another."""
        return self.goes_alone(message_id) and self._seen[message_id].answers == self._answers

    def answered(self, message_id: str | None = None) -> None:
        """The app has answered this message, or the probe of its own."""
        self._answers += 1
        if message_id is not None:
            self._seen.pop(message_id, None)

    def cut_off(self, message_id: str, *, alone: bool) -> bool:
        """The app was asked and ended without an answer; whether that is a failed attempt.

        Args:
            message_id: the same over all retries.
            alone: the app had no other request meanwhile.
        """
        seen = self._seen.pop(message_id, None) or _Seen(answers=self._answers)
        self._seen[message_id] = seen
        if len(self._seen) > _MOST:
            del self._seen[next(iter(self._seen))]
        seen.counted += alone and seen.times >= _SENT_ALONE_AFTER and self._answers > seen.answers
        seen.times += 1
        seen.answers = self._answers
        if seen.counted < _ATTEMPT_AFTER:
            return False
        seen.counted = _ATTEMPT_AFTER - 1  # when it comes again, it is known
        return True
