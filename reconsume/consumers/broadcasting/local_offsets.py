"""The offsets of a broadcasting consumer: a file on this machine (RocketMQ: BP-02).

The file is `offsets.json`: `{"version": 1, "ids": {"<topic>": "<Kafka's id>"}, "offsets": {"<topic>": {"<partition>":
{"offset": 42, "metadata": ""}}}}`. `ids` may be missing; `metadata` is that of a committed offset, see
`delay_levels/progress/metadata.py`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, Final, Self

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.partitioning import is_another_topic
from reconsume.bridge.process.forks import call_in_children
from reconsume.delay_levels.errors import MalformedProperty, OffsetStoreUnusable
from reconsume.delay_levels.progress.metadata import decode_progress
from reconsume.delay_levels.wire.names import encode_name

_VERSION: Final = 1


def offsets_directory(store: Path | None, cluster: str, client_id: str, group: str) -> Path:
    """Return `<store>/<cluster id>/<client id>/<group>`; the default store is `~/.reconsume/offsets`.

    The cluster id is part of the path, because offsets are valid in one cluster only.

    Raises:
        OffsetStoreUnusable: there is no store, and this user has no home directory.
    """
    try:
        base = Path.home() / ".reconsume" / "offsets" if store is None else store
    except RuntimeError:  # no HOME and no passwd entry for the uid, as in some containers
        raise OffsetStoreUnusable(
            "this user has no home folder for offsets; set offset_store to a folder that can be written"
        ) from None
    return base.joinpath(*(encode_name(part) or "." for part in (cluster, client_id, group)))


class LocalOffsets:
    """A locked offset directory. Safe to use from several threads.

    Guarantees:
        1. The file is complete at any moment, also after a crash: a new file replaces it atomically.
        2. Offsets survive a crash of the machine once `save` has returned.
        3. An unreadable file never counts as empty.
        4. A forked child neither releases the lock nor keeps it after its parent's death.
    Test: tests/unit/consumers/broadcasting/test_local_offsets.py.

    Raises:
        OffsetStoreUnusable: another process holds the lock, the file is damaged, or the directory cannot be used.
    """

    def __init__(self, directory: Path, lock: FileIO) -> None:
        self._directory = directory
        self._lock_file = lock
        call_in_children(self._close_copy)
        self._file = directory / "offsets.json"
        self._writing = threading.Lock()
        self._offsets, self._ids = _read(self._file)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Create the directory if necessary, and lock it."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = (directory / "lock").open("ab", buffering=0)
        except OSError as error:
            raise OffsetStoreUnusable(
                f"offsets cannot be stored in {directory}: {error}; set offset_store to a writable directory"
            ) from error
        try:
            _lock(lock, directory)
            return cls(directory, lock)
        except BaseException:
            lock.close()
            raise

    def get(self, topic: str, partition: int) -> Commit | None:
        """Return the saved offset of a partition."""
        return self._offsets.get((topic, partition))

    def topics(self) -> set[str]:
        """Return the topics of which the file has offsets."""
        return {topic for topic, _ in self._offsets}

    def recreated(self, ids: Mapping[str, str]) -> set[str]:
        """Return which of these topics have another id than their offsets; an unknown id is not another one."""
        return {topic for topic, one in ids.items() if is_another_topic(self._ids.get(topic, one), one)}

    def save(self, points: Mapping[tuple[str, int], Commit], ids: Mapping[str, str] | None = None) -> None:
        """Save these offsets; others stay.

        Args:
            points: the offsets.
            ids: ids of topics. If one has changed, earlier offsets of its topic are dropped.

        Raises:
            OffsetStoreUnusable: the file cannot be written; the previous one is still valid.
        """
        with self._writing:
            dropped = self.recreated(ids or {})
            self._replace(self._without(dropped) | dict(points), {**self._ids, **(ids or {})})

    def commit(self, points: Mapping[tuple[str, int], Commit]) -> None:
        """Save new offsets of partitions that have one: forgotten topics stay forgotten; errors as of `save`."""
        with self._writing:
            kept = {where: point for where, point in points.items() if where in self._offsets}
            self._replace({**self._offsets, **kept}, self._ids)

    def forget(self, topics: Collection[str]) -> None:
        """Forget deleted topics; errors as of `save`."""
        with self._writing:
            self._replace(self._without(topics), {one: its for one, its in self._ids.items() if one not in topics})

    def _without(self, topics: Collection[str]) -> dict[tuple[str, int], Commit]:
        return {where: one for where, one in self._offsets.items() if where[0] not in topics}

    def _replace(self, offsets: dict[tuple[str, int], Commit], ids: dict[str, str]) -> None:
        if (offsets, ids) == (self._offsets, self._ids):
            return
        try:
            self._write(_as_text(offsets, ids))
        except OSError as error:
            raise OffsetStoreUnusable(
                f"offsets cannot be saved in {self._file}: {error}; earlier ones stay valid; check the disk"
            ) from error
        self._offsets, self._ids = offsets, ids

    def close(self) -> None:
        """Release the directory, even if a forked child still has the file open."""
        if not self._lock_file.closed:
            _unlock(self._lock_file)
        self._lock_file.close()

    def _close_copy(self) -> None:
        """Close the file in a forked child, which would hold the lock longer; `close` would take it from the parent."""
        self._lock_file.close()

    def _write(self, text: str) -> None:
        beside = self._file.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._file)
        # The rename must survive a crash too.
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _lock(file: FileIO, directory: Path) -> None:
    """Lock the file for this process; the lock ends with the process, so a crash leaves none behind."""
    try:
        import fcntl  # noqa: PLC0415 - Windows has none, and all else works there
    except ImportError:
        raise OffsetStoreUnusable("broadcasting needs the file locks of Linux or macOS") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise OffsetStoreUnusable(
            f"another broadcasting consumer uses the offsets in {directory}; give each consumer on this machine its "
            "own client.id in conf, or its own offset_store"
        ) from error


def _unlock(file: FileIO) -> None:
    import fcntl  # noqa: PLC0415 - see above

    fcntl.flock(file, fcntl.LOCK_UN)


def _read(file: Path) -> tuple[dict[tuple[str, int], Commit], dict[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}, {}
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error
    try:
        return _from_text(text)
    except (ValueError, LookupError, TypeError, AttributeError, MalformedProperty) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> OffsetStoreUnusable:
    return OffsetStoreUnusable(
        f"{file} is damaged: {error!r}; restore a good copy, or delete the file to start like a new consumer "
        "(consume_from_where)"
    )


def _as_text(offsets: Mapping[tuple[str, int], Commit], ids: Mapping[str, str]) -> str:
    by_topic: dict[str, dict[str, Any]] = {}
    for (topic, partition), point in sorted(offsets.items()):
        by_topic.setdefault(topic, {})[str(partition)] = {"offset": point.offset, "metadata": point.metadata}
    return json.dumps({"version": _VERSION, "ids": ids, "offsets": by_topic}, indent=1)


def _from_text(text: str) -> tuple[dict[tuple[str, int], Commit], dict[str, str]]:
    document = json.loads(text)
    if document["version"] != _VERSION:
        raise ValueError(f"version {document['version']!r} is not known")
    ids = document.get("ids", {})
    if not all(type(one) is str for one in ids.values()):
        raise ValueError(f"ids: {ids!r}")
    offsets = {}
    for topic, partitions in document["offsets"].items():
        for partition, saved in partitions.items():
            offset, metadata = saved["offset"], saved["metadata"]
            if type(offset) is not int or offset < 0 or type(metadata) is not str:
                raise ValueError(f"{topic}-{partition}: {saved!r}")
            decode_progress(offset, metadata)
            offsets[topic, int(partition)] = Commit(offset, metadata)
    return offsets, ids
