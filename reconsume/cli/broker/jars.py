"""Jars: taken from Maven Central by the Ivy that pyspark ships, once, then kept in the user's cache.

Ivy writes each file under a temporary name and keeps what it has, so a download that was interrupted goes on where
it stopped. Our own folder appears in one rename together with a list of its files.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconsume.bridge.process.environment import cache_folder
from reconsume.delay_levels.errors import ReconsumeError

KAFKA_VERSION: Final = "3.9.2"
"""Of the brokers that commands start. From 4.0 on the only broker of a cluster may lose a group's offsets for good when
it starts: it becomes coordinator twice, and takes the first loading for the second. 4.2 and 4.3 also take a partition
for deleted that has no leader when a transaction ends, and leave the transaction open there (KAFKA-20734)."""
NEWEST_KAFKA_VERSION: Final = "4.3.0"
"""Of the broker that most tests run on, which is never killed; groups may use KIP-848 there."""
_SIZES: Final = {KAFKA_VERSION: (58, 48), NEWEST_KAFKA_VERSION: (46, 44)}
"""How many jars, and their megabytes."""
Progress = Callable[[str], None]
"""Called with a line for people: what is being fetched, or waited for."""

_MODULES: Final = """<ivy-module version="2.0">
  <info organisation="reconsume" module="kafka"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default->default"/>
  </dependencies>
</ivy-module>
"""
_SYSTEM_CERTIFICATES: Final = Path("/etc/ssl/certs/java/cacerts")
_MANIFEST: Final = "files.json"
_FETCHING: Final = re.compile(r"^downloading \S*/(\S+) \.\.\.$")


class JarsNotFound(ReconsumeError):
    """Jars could not be fetched."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are fetched together.

    Attributes:
        folder: in the cache.
        what: as people are told, such as `Apache Kafka 3.9.2`.
        modules: what Ivy is to fetch, as an `ivy-module`.
        count: of the jars.
        megabytes: of all of them.
    """

    folder: str
    what: str
    modules: str
    count: int
    megabytes: int


def kafka_jars(java: Path, progress: Progress, version: str = KAFKA_VERSION) -> Path:
    """The folder of Kafka's jars, fetched if it is not there or not whole.

    Raises:
        JarsNotFound: no pyspark to take Ivy from, or Ivy could not fetch; with its last lines.
    """
    modules = _MODULES.format(version=version)
    wanted = JarSet(f"kafka-{version}", f"Apache Kafka {version}", modules, *_SIZES[version])
    return cached_jars(java, progress, wanted)


def cached_jars(java: Path, progress: Progress, wanted: JarSet) -> Path:
    """The folder of a set of jars, fetched if it is not there or not whole.

    Raises:
        JarsNotFound: no pyspark to take Ivy from, Ivy could not fetch (with its last lines), or they have no place.
    """
    cache = cache_folder()
    folder = cache / wanted.folder
    if is_whole(folder):
        return folder  # also where nobody may write
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "ivy.lock").touch()
    except OSError as error:
        raise JarsNotFound(
            f"the jars of {wanted.what} are not in {folder}, and there is no place for them ({error}): "
            "set RECONSUME_CACHE_DIR to a folder that has them, or that can be written"
        ) from error
    with _lock(cache / "ivy.lock", wanted, progress) as lock:
        if not is_whole(folder):
            for left in cache.glob("fetching-*"):  # by a process that was killed
                shutil.rmtree(left, ignore_errors=True)
            _fetch(java, folder, wanted, progress, lock=lock)
    return folder


def is_whole(folder: Path) -> bool:
    """Whether all files of the folder's list are there in their size."""
    try:
        sizes = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def _fetch(java: Path, folder: Path, wanted: JarSet, progress: Progress, *, lock: int) -> None:
    ivy = _ivy()
    progress(f"fetching {wanted.what} from Maven Central ({wanted.count} jars, {wanted.megabytes} MB, once)")
    cache = folder.parent
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as work:
        modules = Path(work) / "ivy.xml"
        modules.write_text(wanted.modules)
        new = Path(work) / "jars"
        _run_ivy(
            [
                *(str(java), *_trust_store(), "-jar", str(ivy), "-cache", str(cache / "ivy"), "-ivy", str(modules)),
                *("-types", "jar", "bundle"),
                *("-retrieve", str(new / "[artifact]-[revision](-[classifier]).[ext]")),
            ],
            wanted,
            progress,
            lock,
        )
        sizes = {jar.name: jar.stat().st_size for jar in sorted(new.glob("*.jar"))}
        (new / _MANIFEST).write_text(json.dumps(sizes, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def _run_ivy(command: list[str], wanted: JarSet, progress: Progress, lock: int) -> None:
    last: deque[str] = deque(maxlen=15)
    fetched = 0
    # Ivy holds the lock too: it may outlive a killed parent, and two at once spoil each other's files.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, pass_fds=(lock,)
    ) as ivy:
        try:
            for line in ivy.stdout or ():
                last.append(line.rstrip())
                if match := _FETCHING.match(line.strip()):
                    fetched += match[1].endswith(".jar")
                    of = f"{fetched} of {wanted.count} jars"
                    progress(f"fetching {match[1]} ({of})" if fetched else f"resolving {match[1]}")
        except BaseException:
            ivy.kill()  # or leaving the block would wait until everything is fetched
            raise
    if ivy.returncode != 0:
        raise JarsNotFound(
            f"the jars of {wanted.what} could not be fetched from Maven Central; run it again, it goes on with what "
            "it has. Ivy's last lines:\n  " + "\n  ".join(last)
        )


def _trust_store() -> list[str]:
    """The system's certificates, where it has them for Java: a Java from PyPI knows none of a company's own."""
    return [f"-Djavax.net.ssl.trustStore={_SYSTEM_CERTIFICATES}"] if _SYSTEM_CERTIFICATES.exists() else []


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin is not None else None
    found = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not found:
        raise JarsNotFound("pyspark, which ships Ivy, is not installed: pip install '.[broker]' in the checkout")
    return found[-1]


@contextmanager
def _lock(path: Path, wanted: JarSet, progress: Progress) -> Iterator[int]:
    """One process fetches, the others wait and find the result."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that fetches {wanted.what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()
