"""Admin clients that are never destroyed by their own thread.

An `AdminClient` of confluent-kafka (2.16) answers in a thread of its own. If Python collects garbage there and finds
this client, as after an error that was kept with its traceback, librdkafka ends the process: `rd_kafka_destroy() called
from librdkafka owned thread`. Issue: https://github.com/confluentinc/confluent-kafka-python/pull/2131.
Test: tests/unit/bridge/librdkafka/test_admin_threads.py.

Remove when: confluent-kafka destroys no client in its own thread.
"""

from __future__ import annotations

import threading
from typing import Final

_kept: Final[list[DestroyedByPython]] = []


class DestroyedByPython:
    """The first base of a client that may be released in any thread.

    Guarantees: a client that is released in a thread of librdkafka's is kept until `destroy_kept`.
    """

    def __del__(self) -> None:
        """Keep the client, unless Python has started this thread. Python calls this once for each object."""
        if isinstance(threading.current_thread(), threading._DummyThread):  # noqa: SLF001 - it has no public name
            _kept.append(self)


def destroy_kept() -> int:
    """Destroy the kept clients, from a thread of Python's; return how many."""
    count = len(_kept)
    _kept.clear()
    return count
