"""The consumer's group metadata, for a thread that is not the one that polls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

__all__ = ["GroupMetadata"]


class GroupMetadata:
    """Asks the consumer in the thread that polls, between two polls.

    confluent-kafka lets one thread at a time into a consumer, and one that waits looks every millisecond whether it may
    go in: beside a thread that polls all the time it waits for seconds, or for ever.

    Args:
        ask: the consumer's `consumer_group_metadata`.
    """

    def __init__(self, ask: Callable[[], Any]) -> None:
        self._ask = ask
        self._changed = threading.Condition()
        self._owner: int | None = None
        self._wanted = False
        self._closed = False
        self._answers = 0
        self._metadata: Any = None

    def __call__(self) -> Any:
        """As it is now; another thread than the one that polls waits for a turn of it. None after `close`."""
        if threading.get_ident() == self._owner:
            return self._ask()
        with self._changed:
            before = self._answers
            self._wanted = True
            self._changed.wait_for(lambda: self._answers > before or self._closed)
            return None if self._closed else self._metadata

    def serve(self) -> None:
        """Answer whoever waits; called in each turn by the thread that polls."""
        self._owner = threading.get_ident()
        if not self._wanted:
            return
        metadata = self._ask()
        with self._changed:
            self._wanted = False
            self._metadata = metadata
            self._answers += 1
            self._changed.notify_all()

    def close(self) -> None:
        """No more turns come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
