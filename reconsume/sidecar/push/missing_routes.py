"""404: a route that is not there yet, or will never be."""

from __future__ import annotations

from typing import Final

__all__ = ["MissingRoutes"]

_FIRST_PAUSE_MS: Final = 250.0
_LONGEST_PAUSE_MS: Final = 5_000.0
_Place = tuple[str, int, int]


class MissingRoutes:
    """Tells how long a 404 is held: until the message, or its whole route, has had nothing else for the grace.

    An app that says 404 to some messages of a route that it has must not hold those for ever, and a route that stays
    away must not hold every message for the whole grace again.

    Args:
        grace_ms: after this a 404 is an answer.
    """

    def __init__(self, grace_ms: float) -> None:
        self._grace_ms = grace_ms
        self._forgotten_after_ms = max(grace_ms, 2 * _LONGEST_PAUSE_MS)
        self._routes: dict[str, tuple[float, float]] = {}
        self._messages: dict[_Place, float] = {}

    def missing(self, route: str, message: _Place, now_ms: float) -> float | None:
        """When to try again, in milliseconds; None when the grace is over."""
        since, last = self._routes.get(route, (now_ms, now_ms))
        if now_ms - last > self._forgotten_after_ms:  # nobody has asked for long: it is another time
            since = now_ms
        self._routes[route] = since, now_ms
        since = min(since, self._messages.setdefault(message, now_ms))
        waited = now_ms - since
        if waited >= self._grace_ms:
            self._messages.pop(message, None)
            return None
        self._forget(now_ms)
        pause = min(max(_FIRST_PAUSE_MS, waited), _LONGEST_PAUSE_MS, self._grace_ms - waited)
        return now_ms + pause

    def found(self, route: str, message: _Place) -> None:
        """The route gave another answer."""
        if self._routes:
            self._routes.pop(route, None)
        if self._messages:
            self._messages.pop(message, None)

    def _forget(self, now_ms: float) -> None:
        """Messages that went to another member are not heard of again."""
        horizon = now_ms - self._grace_ms - 2 * _LONGEST_PAUSE_MS
        for message in [one for one, since in self._messages.items() if since < horizon]:
            del self._messages[message]
