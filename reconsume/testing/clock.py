"""A clock that stands still until a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class FakeClock:
    """Gives milliseconds since the epoch, as `reconsume.bridge.process.clock.now_ms` does.

    Args:
        start: the first time, with a time zone.
    """

    def __init__(self, start: datetime) -> None:
        self.now_ms = (start - _EPOCH) / _MS

    def __call__(self) -> float:
        """Return the time in milliseconds."""
        return self.now_ms

    @property
    def now(self) -> datetime:
        """Return the time, in UTC."""
        return moment(self.now_ms)


def moment(milliseconds: float) -> datetime:
    """Convert milliseconds since the epoch to a time in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
