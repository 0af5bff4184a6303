"""What happened, as members write it down, one JSON line each."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

__all__ = ["Event", "Journal", "Reader", "What"]

What = Literal[
    "begin",
    "worked",
    "end",
    "assigned",
    "revoked",
    "lost",
    "overdue",
    "refused",
    "left",
    "killed",
    "stopped",
    "continued",
    "ended",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a member, or was done to it.

    Attributes:
        at: seconds of the system's monotonic clock, the same for all processes.
        member: its name.
        topic, partition, offset: where the record stood, of `begin`, `worked` (a poll loop settles it next) and `end`.
        origin: of the record.
        times: how often it had failed.
        succeeded: of an `end`, what the listener said.
        settled: of an `end` in a poll loop, whether the commit or the send-back was acknowledged.
        partitions: of `assigned`, `revoked`, `lost`, `overdue` and `refused` (a commit), as `<topic>-<partition>`.
    """

    at: float
    member: str
    what: What
    topic: str = ""
    partition: int = -1
    offset: int = -1
    origin: str = ""
    body: str = ""
    times: int = 0
    succeeded: bool = False
    settled: bool = False
    partitions: tuple[str, ...] = ()


class Journal:
    """Appends events to a file; a line that was written stays after a kill."""

    def __init__(self, path: Path, member: str) -> None:
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._member = member

    def write(self, what: What, **more: Any) -> None:
        """One write call for a line, so lines of several threads do not mix."""
        event = Event(time.monotonic(), self._member, what, **more)
        self._file.write(json.dumps(asdict(event)).encode() + b"\n")


class Reader:
    """Reads a journal as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def more(self) -> list[Event]:
        """What has come since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, _, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + 1 if whole else 0
        events = [json.loads(line) for line in whole.splitlines()]
        return [Event(**event | {"partitions": tuple(event["partitions"])}) for event in events]
