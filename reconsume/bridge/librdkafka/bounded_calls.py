"""Calls into librdkafka that may never return, made in a thread that can be abandoned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

_Result = SimpleQueue[BaseException | None]


class BoundedCalls:
    """Runs one call at a time in a background thread, and gives up on a call that does not end.

    librdkafka (2.16) can wait forever in `send_offsets_to_transaction`, regardless of its timeout, after a broker was
    killed and has returned; the thread that owns the consumer must not hang with it.

    Guarantees: every step of a transaction runs here; only `Transactions` and its helpers make one. A hanging step is
    abandoned with its thread and its producer: before the commit the transaction is certainly aborted, a commit without
    an answer is in doubt. Each call has its own result, so the result of an abandoned call is never taken for the next
    one's. Tests: tests/integration/test_transactions.py, tests/integration/test_killed_in_the_middle.py,
    tests/unit/bridge/kafka/test_clients.py, tests/unit/bridge/librdkafka/test_bounded_calls.py.

    Remove when: each step of a transaction in librdkafka ends within its timeout, also after a broker was killed.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], _Result] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="reconsume-transactions", daemon=True).start()

    def run(self, call: Callable[[], None], seconds: float) -> None:
        """Run the call; raise its error, or `TimeoutError`, after which this object must not be used again."""
        result: _Result = SimpleQueue()
        self._calls.put((call, result))
        try:
            error = result.get(timeout=seconds)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error

    def leave(self, last: Callable[[], None]) -> None:
        """After an abandoned call: if it ever ends, run `last` and end the thread."""
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
