"""Calls into librdkafka that may never return, made in a thread that can be abandoned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock

_Result = SimpleQueue[BaseException | None]


class SecondCallUnended(TimeoutError):
    """The first call has ended in time, the second has not."""


class BoundedCalls:
    """Runs one call at a time in a background thread, and gives up on a call that does not end.

    librdkafka (2.16) can wait forever in `send_offsets_to_transaction`, regardless of its timeout, after a broker was
    killed and has returned; the thread that owns the consumer must not hang with it.

    Guarantees: every step of a transaction runs here; `Transactions` and its helpers alone make one. A step that hangs
    is left behind with its thread and its producer: before the commit the transaction is certainly aborted, because the
    commit never begins; the outcome of a commit without an answer is unknown. Each call has its own result, so that a
    late result is not taken for that of the next call. Tests: tests/integration/bridge/test_transactions.py,
    tests/integration/cli/test_killed_in_the_middle.py, tests/unit/bridge/kafka/test_clients.py,
    tests/unit/bridge/librdkafka/test_bounded_calls.py.
    Remove when: each step of a transaction in librdkafka ends within its timeout, also after a broker was killed.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], _Result] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="reconsume-transactions", daemon=True).start()

    def run(
        self,
        call: Callable[[], None],
        seconds: float,
        then: Callable[[], None] | None = None,
        then_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Run a call and right after it a second one, without waking another thread in between.

        Args:
            call: the first call.
            seconds: the timeout of the first call.
            then: the second call.
            then_seconds: returns the timeout of the second call, counted from the end of `seconds`.

        Raises:
            SecondCallUnended: the second call did not end in time.
            TimeoutError: the first call did not end in time. The second will not begin; do not use the object again.
            Exception: raised by one of the calls.
        """
        result: _Result = SimpleQueue()
        decided = Lock()  # its owner decides whether the second call begins

        def both() -> None:
            call()
            if then is not None and decided.acquire(blocking=False):
                then()

        self._calls.put((both, result))
        try:
            _raise_result(result, seconds)
        except TimeoutError:
            if decided.acquire(blocking=False) or then is None:
                raise
            try:
                _raise_result(result, max(0.0, then_seconds()))
            except TimeoutError as error:
                raise SecondCallUnended from error

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


def _raise_result(result: _Result, seconds: float) -> None:
    try:
        error = result.get(timeout=seconds)
    except Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
