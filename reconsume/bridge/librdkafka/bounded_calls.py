"""Calls into librdkafka that may never come back, made in a thread that may be left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_Result = SimpleQueue[BaseException | None]


class BoundedCalls:
    """Runs one call at a time in a thread of its own, and gives up on one that does not end.

    librdkafka (2.16) can wait forever in `send_offsets_to_transaction`, whatever its timeout, when the broker was
    killed before and has come back; the thread that owns the consumer must not hang with it.

    Guarantees: every step of a transaction runs here; `Transactions` and its helpers alone make one. A step that hangs
    is left behind with its thread and its producer: before the commit it is undone for certain, a commit without an
    answer is in doubt. Each call has a result of its own, so one that nobody waits for any more is not taken for that
    of the next. Tests: tests/integration/test_transactions.py, tests/integration/test_killed_in_the_middle.py,
    tests/unit/bridge/kafka/test_clients.py, tests/unit/bridge/librdkafka/test_bounded_calls.py.

    Remove when: each step of a transaction in librdkafka ends within its timeout, also after a broker was killed.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], _Result] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="reconsume-transactions", daemon=True).start()

    def run(self, call: Callable[[], None], seconds: float) -> None:
        """Raises what the call raises, or `TimeoutError`; after that this object must not be used again."""
        result: _Result = SimpleQueue()
        self._calls.put((call, result))
        try:
            error = result.get(timeout=seconds)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error

    def leave(self, last: Callable[[], None]) -> None:
        """After a call that was given up: should it end at last, do this, and end the thread."""
        self._calls.put((last, SimpleQueue()))
        self._calls.put(None)

    def close(self) -> None:
        """End the thread."""
        self._calls.put(None)

    def _work(self) -> None:
        while (asked := self._calls.get()) is not None:
            call, result = asked
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again in `run`
                result.put(error)
            else:
                result.put(None)
