"""Metadata beside a committed offset: finished records above it, and how often unfinished ones failed.

The text is `done1:<bitmap>`, as `done_ahead` writes it, then `;failed1:` and `<offsets above>=<times>` separated by
commas. Either part may be missing. Kafka allows 4,096 bytes.

Guarantees: reading stops before the bitmap is full; of counts that do not fit the highest are kept; the metadata of
other clients is no progress and is ignored. Tests: tests/unit/delay_levels/progress/test_metadata.py,
tests/integration/consumers/test_push_consumer_offsets.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.progress.done_ahead import LONGEST_SPAN, decode_done, encode_done

MAX_METADATA_BYTES: Final = 4_095
"""By default brokers (4.3) refuse 4,096, their `offset.metadata.max.bytes`.
Test: tests/integration/bridge/test_transactions.py.
"""

_FAILED: Final = ";failed1:"
_FAILURES: Final = re.compile(r"[0-9]{1,10}=[0-9]{1,10}(,[0-9]{1,10}=[0-9]{1,10})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class KeptProgress:
    """The stored progress of an earlier owner.

    Attributes:
        done: offsets above the committed one that are finished.
        failures: how often a record failed in place, by its offset.
    """

    done: frozenset[int] = frozenset()
    failures: Mapping[int, int] = field(default_factory=dict)


def encode_progress(offset: int, done: Iterable[int], failures: Mapping[int, int]) -> str:
    """Return the metadata for a committed offset; empty if there is no progress to keep.

    Excess progress is left out. A done record more than `LONGEST_SPAN` above the offset is repeated after a crash (the
    consumer stops reading before that, but a compacted topic may jump). Of the failures the highest counts are kept.
    """
    text = encode_done(offset, (one for one in done if one - offset < LONGEST_SPAN))
    room = MAX_METADATA_BYTES - len(text) - len(_FAILED)
    kept = []
    for one, times in sorted(failures.items(), key=lambda entry: (-entry[1], entry[0])):
        entry = f"{one - offset}={times}"
        if one < offset or len(entry) + 1 > room:
            continue
        room -= len(entry) + 1
        kept.append(entry)
    return text + _FAILED + ",".join(kept) if kept else text


def decode_progress(offset: int, metadata: str | None) -> KeptProgress:
    """Read the text of `encode_progress`; an empty text, as other clients leave it, is no progress.

    Raises:
        MalformedProperty: the text is something else.
    """
    done, _, failures = (metadata or "").partition(_FAILED)
    if failures and not _FAILURES.fullmatch(failures):
        raise MalformedProperty(f"the metadata of offset {offset} is not ours: {failures[:40]!r}")
    counts = {}
    for entry in failures.split(",") if failures else ():
        above, _, times = entry.partition("=")
        counts[offset + int(above)] = int(times)
    return KeptProgress(decode_done(offset, done), counts)
