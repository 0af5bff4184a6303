"""Jars, downloaded once from Maven Central with pyspark's Ivy, then kept in the user's cache.

Ivy writes each file under a temporary name and keeps complete ones, so an interrupted download continues where it
stopped. The final folder appears with one rename, together with a list of its files.
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
from reconsume.cli.broker.children import child_process
from reconsume.cli.broker.proxies import JavaProxy
from reconsume.delay_levels.errors import ReconsumeError

KAFKA_VERSION: Final = "3.9.2"
"""The version of brokers that commands start. From 4.0 on, the only broker of a cluster may lose a group's offsets for
good at its start: it becomes coordinator twice, and confuses the first loading with the second. 4.2 and 4.3 also treat
a partition without a leader at the end of a transaction as deleted, and leave it open (KAFKA-20734)."""
NEWEST_KAFKA_VERSION: Final = "4.3.0"
"""The version of the broker in most tests, which is never killed; groups may use KIP-848 there."""
_SIZES: Final = {KAFKA_VERSION: (58, 48), NEWEST_KAFKA_VERSION: (46, 44)}
"""Number of jars, and their megabytes."""
KAFKA_VERSIONS: Final = tuple(_SIZES)
Progress = Callable[[str], None]
"""Called with a line for people: the current download, or the reason of a wait."""

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
    """The jars could not be downloaded."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that are downloaded together.

    Attributes:
        folder: the folder in the cache.
        what: a name for people, such as `Apache Kafka 3.9.2`.
        modules: the modules for Ivy, as an `ivy-module`.
        count: number of jars.
        megabytes: total size.
    """

    folder: str
    what: str
    modules: str
    count: int
    megabytes: int


def kafka_jars(java: Path, progress: Progress, version: str = KAFKA_VERSION) -> Path:
    """Return the folder of Kafka's jars; download them if it is missing or incomplete.

    Raises:
        JarsNotFound: pyspark, which has Ivy, is missing, or Ivy failed; with its last lines.
    """
    modules = _MODULES.format(version=version)
    wanted = JarSet(f"kafka-{version}", f"Apache Kafka {version}", modules, *_SIZES[version])
    return cached_jars(java, progress, wanted)


def cached_jars(java: Path, progress: Progress, wanted: JarSet) -> Path:
    """Return the folder of a set of jars; download them if it is missing or incomplete.

    Raises:
        JarsNotFound: pyspark, which has Ivy, is missing, Ivy failed (with its last lines), or no folder is writable.
    """
    cache = cache_folder()
    folder = cache / wanted.folder
    if is_whole(folder):
        return folder  # also without write access
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "ivy.lock").touch()
    except OSError as error:
        raise JarsNotFound(
            f"the jars of {wanted.what} are not in {folder} and cannot be stored there ({error}): "
            "set RECONSUME_CACHE_DIR to a folder that has them, or that can be written"
        ) from error
    with _lock(cache / "ivy.lock", wanted, progress) as lock:
        if not is_whole(folder):
            for left in cache.glob("fetching-*"):  # left over by a killed process
                shutil.rmtree(left, ignore_errors=True)
            _fetch(java, folder, wanted, progress, lock=lock)
    return folder


def is_whole(folder: Path) -> bool:
    """Return whether all files of the folder's list exist with their sizes."""
    try:
        sizes = json.loads((folder / _MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def _fetch(java: Path, folder: Path, wanted: JarSet, progress: Progress, *, lock: int) -> None:
    ivy, proxy = _ivy(), JavaProxy.of_environment()
    progress(f"fetching {wanted.what} from Maven Central ({wanted.count} jars, {wanted.megabytes} MB, once)")
    cache = folder.parent
    with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as work:
        modules = Path(work) / "ivy.xml"
        modules.write_text(wanted.modules)
        arguments = Path(work) / "java-arguments"
        arguments.write_text(proxy.arguments())
        new = Path(work) / "jars"
        _run_ivy(
            [
                *(str(java), *_trust_store(), f"@{arguments}", "-jar", str(ivy)),
                *("-cache", str(cache / "ivy"), "-ivy", str(modules)),
                *("-types", "jar", "bundle"),
                *("-retrieve", str(new / "[artifact]-[revision](-[classifier]).[ext]")),
            ],
            wanted,
            progress,
            lock,
            proxy,
        )
        sizes = {jar.name: jar.stat().st_size for jar in sorted(new.glob("*.jar"))}
        (new / _MANIFEST).write_text(json.dumps(sizes, indent=1))
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def _run_ivy(command: list[str], wanted: JarSet, progress: Progress, lock: int, proxy: JavaProxy) -> None:
    last: deque[str] = deque(maxlen=15)
    fetched = 0
    # Ivy holds the lock too: it may outlive a killed parent, and two at once damage each other's files.
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with child_process(command, **output, pass_fds=(lock,)) as ivy:
        for line in ivy.stdout or ():
            last.append(line.rstrip())
            if match := _FETCHING.match(line.strip()):
                fetched += match[1].endswith(".jar")
                of = f"{fetched} of {wanted.count} jars"
                progress(f"fetching {match[1]} ({of})" if fetched else f"resolving {match[1]}")
    if ivy.returncode != 0:
        way = (
            f"through the proxy {proxy.name} (https_proxy)" if proxy.name else "without a proxy (https_proxy is unset)"
        )
        raise JarsNotFound(
            f"the jars of {wanted.what} could not be downloaded from Maven Central {way}; run the command again to "
            "continue the download. Ivy's last lines:\n  " + "\n  ".join(last)
        )


def _trust_store() -> list[str]:
    """Return options for the system's certificates, if it has them for Java: a Java from PyPI lacks a company's own."""
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
    """Lock the download: one process downloads, the others wait and use the result."""
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that fetches {wanted.what}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle.fileno()
