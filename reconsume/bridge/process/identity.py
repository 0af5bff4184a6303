"""The identity of a process: unique, and the same after a restart on the same machine."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

from reconsume.bridge.process.forks import call_in_children
from reconsume.bridge.process.safe_logger import SafeLogger

logger = SafeLogger(__name__)

_SLOTS: Final = 1_000
_TOKEN: Final = re.compile(rb"[0-9a-f]{16}", re.ASCII)


class Identity:
    """A name that no other live process has, and the lock that reserves it until the process ends.

    Attributes:
        name: letters, digits, `.`, `_` and `-`; legal as a transactional id and as a `group.instance.id`.
    """

    def __init__(self, name: str, lock: int | None = None) -> None:
        self.name, self._lock = name, lock
        # A child that outlives its parent must not hold its parent's lock.
        call_in_children(self.release)

    def release(self) -> None:
        """Free the name for the next process."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def stable_identity(role: str, scope: str) -> Identity:
    """Take the lowest free slot of this machine, with the name in its file.

    The name is a random token in the slot's file, which the process locks. So it is unique without trusting host names,
    and on an ephemeral file system each start gets a new name. The host's name is a prefix for people, and part of the
    file's name for home folders that hosts share. If no file can be locked, the name is random.

    Guarantees: the token makes a transactional id unique; names of hosts or pods may occur twice.
    Test: tests/unit/bridge/process/test_identity.py.

    Args:
        role: the role of the process, such as `scheduler`.
        scope: the scope of its slots, such as an installation and a group.
    """
    host = re.sub(r"[^A-Za-z0-9._-]", "_", socket.gethostname())[:63] or "host"
    slots = f"{role}-{hashlib.sha256(scope.encode()).hexdigest()[:16]}-{host}"
    for folder in _folders():
        try:
            if (found := _identity_in(folder, slots, host)) is not None:
                return found
        except (OSError, ImportError) as error:
            logger.debug("no identity in folder=%s error=%s", folder, error)
    name = f"{host}-{secrets.token_hex(8)}"
    logger.warning(
        "identity is random role=%s name=%s: no folder takes a lock file, so a restart has another identity; "
        "set XDG_STATE_HOME to a folder that can be written and outlives the process",
        role,
        name,
    )
    return Identity(name)


def _folders() -> Iterator[Path]:
    """Return possible folders of slots, the best first; in a shared folder each user has a subfolder."""
    if state := os.environ.get("XDG_STATE_HOME"):
        yield Path(state, "reconsume")
    mine = f"reconsume-{os.getuid()}" if hasattr(os, "getuid") else "reconsume"
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        # It belongs to the pod and is writable with a read-only root; a container's own files are lost at each restart.
        yield Path("/dev/shm", mine)  # noqa: S108 - its owner is checked
    if home := os.environ.get("HOME"):
        yield Path(home, ".local", "state", "reconsume")
    yield Path(os.environ.get("TMPDIR", "/tmp"), mine)  # noqa: S108 - its owner is checked


def _identity_in(folder: Path, slots: str, host: str) -> Identity | None:
    import fcntl  # noqa: PLC0415 - Windows has none, and all else works there

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    for slot in range(_SLOTS):
        file = os.open(folder / f"{slots}-{slot}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            token = os.pread(file, 64, 0)
            if _TOKEN.fullmatch(token) is None:
                token = secrets.token_hex(8).encode()
                os.ftruncate(file, 0)
                os.pwrite(file, token, 0)
        except OSError as error:
            os.close(file)
            if not isinstance(error, BlockingIOError):
                raise
        else:
            return Identity(f"{host}-{slot}-{token.decode()}", file)
    return None
