"""The folder of a broker's data: whose data it has, and errors about it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from reconsume.cli.broker.jars import KAFKA_VERSIONS
from reconsume.delay_levels.errors import ReconsumeError

CLUSTER_ID: Final = "cmVjb25zdW1lLWxvY2FsAA"
_VERSION_NOTE: Final = "kafka-version"
_VERSION_WITHOUT_NOTE: Final = "4.3.0"


class BrokerFailed(ReconsumeError):
    """The broker did not start, or ended; the message has its last lines."""


@contextmanager
def using_folder() -> Iterator[None]:
    """Turn errors of files in this block into `BrokerFailed`."""
    try:
        yield
    except OSError as error:
        raise BrokerFailed(f"Kafka has no folder for its data: {error}; name one that can be written") from None


def require_unused(folder: Path) -> None:
    """Check that no Kafka that runs has the folder.

    A second one would write to the metadata of the first before it looks for the lock itself.

    Raises:
        BrokerFailed: another one has it.
    """
    lock = folder / "log" / ".lock"
    if not lock.exists():
        return
    with using_folder(), lock.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            used = f"the data folder {folder} is used by another Kafka; stop it, or name another one"
            raise BrokerFailed(used) from None


def is_formatted(folder: Path) -> bool:
    """Return whether a broker has data in the folder."""
    return _meta_file(folder).exists()


def note_version(folder: Path, version: str) -> None:
    """Note the version that formatted the folder."""
    (folder / _VERSION_NOTE).write_text(f"{version}\n")


def version_of_data(folder: Path, wanted: str) -> str:
    """Return the version of Kafka that formatted the folder, else the wanted one: an older one would not start.

    Raises:
        BrokerFailed: another cluster has written the data, or a version that this reconsume cannot start.
    """
    with using_folder():
        note, meta = folder / _VERSION_NOTE, _meta_file(folder)
        if meta.exists() and f"cluster.id={CLUSTER_ID}" not in meta.read_text(errors="replace").splitlines():
            raise BrokerFailed(f"the data folder {folder} has the data of another Kafka cluster; name another folder")
        if not note.exists():
            return _VERSION_WITHOUT_NOTE if meta.exists() else wanted
        version = note.read_text(errors="replace").strip()
    if version not in KAFKA_VERSIONS:
        raise BrokerFailed(
            f"the data folder {folder} was made by Kafka {version!r}, and this reconsume starts only "
            f"{' and '.join(KAFKA_VERSIONS)}; name another folder, or use the reconsume that made it"
        )
    return version


def _meta_file(folder: Path) -> Path:
    return folder / "log" / "meta.properties"
