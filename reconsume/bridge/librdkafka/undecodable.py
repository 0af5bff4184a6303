"""Header names and metadata that are not UTF-8.

* A record: `Message.headers()` of confluent-kafka (2.16) raises `SystemError` once if a name is not UTF-8, and then
  gives a list with null pointers, on which Python crashes. Only `headers_of` and `mend_headers` ask for headers.
  Test: tests/integration/bridge/librdkafka/test_header_names.py.
* An offset: confluent-kafka (2.16) raises on metadata that is not UTF-8, such as franz-go commits. Only `metadata_of`
  asks for metadata. Test: tests/integration/sidecar/test_examples_faults.py.

Remove when: confluent-kafka returns such names and metadata without an error, or as bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from gc import get_referents
from operator import methodcaller
from threading import RLock
from typing import Final, Protocol

from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.delay_levels.wire.properties import Header

logger = SafeLogger(__name__)

_DECODING: Final[list[RLock]] = []
_LOCKS: Final = 16
_UNKNOWN_NAME: Final = "\N{REPLACEMENT CHARACTER}"
_HEADERS: Final[Callable[[PolledRecord], list[Header] | None]] = methodcaller("headers")
"""Not `message.headers()`: once specialised, Python (3.11) notices its error only in a later call."""


def _renew_locks() -> None:
    """Forget locks of threads that a forked child does not have."""
    _DECODING[:] = [RLock() for _ in range(_LOCKS)]


_renew_locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def headers_of(message: PolledRecord) -> list[Header]:
    r"""Return a record's headers; confluent-kafka decodes them on first use and keeps the list, so do not change it.

    A name that is not UTF-8, which Java clients cannot write but C clients can, is shown with escapes such as `\xff`,
    of several each as U+FFFD, and the log says so. Its value and all other headers are as they were.

    Only for messages that no user code has seen: see `mend_headers`.
    """
    try:
        return _HEADERS(message) or []
    except SystemError as error:
        return _with_names(message, error)


def shared_headers_of(message: PolledRecord) -> list[Header]:
    """Return the headers of a message that several threads may ask at once, such as listener and consume timeout.

    confluent-kafka (2.16) decodes headers on first use. If a garbage collection lets another thread in meanwhile, that
    one decodes and frees them too, and Python crashes. Test: tests/unit/consumers/test_message.py.
    Remove when: `Message.headers()` of confluent-kafka can be called in several threads.
    """
    # Several, so that threads with different messages rarely meet; reentrant for what a collection runs in this thread.
    with _DECODING[id(message) // 64 % _LOCKS]:
        return headers_of(message)


def mend_headers(message: PolledRecord) -> None:
    """Make `headers_of` safe for a message whose headers user code may have read, with an error.

    The kept list then has null pointers for names. The garbage collector's view omits them, but getting it costs a
    third of reading the headers.
    """
    headers = headers_of(message)
    if len(get_referents(*headers)) != 2 * len(headers):
        _with_names(message, None)


def _with_names(message: PolledRecord, error: BaseException | None) -> list[Header]:
    """Replace the names that could not be decoded, permanently.

    Args:
        message: a message whose list of headers has null pointers.
        error: the error of confluent-kafka, if it was raised here; one of its causes has one of the names.
    """
    bad = error
    while bad is not None and not isinstance(bad, UnicodeDecodeError):
        bad = bad.__cause__
    if error is not None and bad is None:
        raise error
    headers = _HEADERS(message) or []
    # Headers that user code has set may be of any kind.
    missing = [
        index
        for index, header in enumerate(headers)
        if isinstance(header, tuple) and len(get_referents(header)) == 1 < len(header)
    ]
    if not missing:
        return headers
    name = bad.object.decode(errors="backslashreplace") if bad is not None and len(missing) == 1 else _UNKNOWN_NAME
    mended = [(name if index in missing else header[0], header[1]) for index, header in enumerate(headers)]
    message.set_headers(mended)
    logger.warning(
        "%s-%s@%s: header names are not UTF-8 and are shown as %s",
        *(message.topic(), message.partition(), message.offset(), [name for name, _ in mended]),
    )
    return mended


class _Committed(Protocol):
    @property
    def metadata(self) -> str | None: ...


def metadata_of(committed: _Committed) -> str | None:
    """Return the text beside a committed offset; None if it is not a text, as franz-go writes it."""
    try:
        return committed.metadata
    except UnicodeDecodeError:
        return None
