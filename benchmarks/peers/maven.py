"""Java programs of this folder: their jars from Maven Central, compiled once into the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from reconsume.bridge.process.environment import cache_folder

__all__ = ["HERE", "class_path", "run_java"]

HERE: Final = Path(__file__).parent


def class_path(project: str, version: str = "", common: Sequence[str] = ("Figures", "Load")) -> str:
    """Fetch and compile a project, unless its current version is already there; return its class path.

    Args:
        project: a folder beside this file, with its `pom.xml`.
        version: of the product, in place of the one in the pom.
        common: the classes of `common/` that it uses.

    Raises:
        RuntimeError: no mvn or javac.
    """
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise RuntimeError(f"peers need {tool}: install Maven and a JDK 17 or newer")
    sources = [*sorted((HERE / project).glob("*.java")), *(HERE / "common" / f"{name}.java" for name in common)]
    pom = HERE / project / "pom.xml"
    state = hashlib.sha256(b"".join(file.read_bytes() for file in (pom, *sources))).hexdigest()[:12]
    folder = cache_folder() / "peers" / "-".join(filter(None, (project, version, state)))
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        chosen = [f"-Dpeer.version={version}"] if version else []
        subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(pom), *chosen, "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={folder / 'jars'}"),
            ],
            check=True,
        )
        command = ["javac", "-parameters", "-nowarn", "-d", str(folder / "classes"), "-cp", f"{folder / 'jars'}/*"]
        subprocess.run([*command, *map(str, sources)], check=True)
        (folder / "done").touch()
    return f"{folder / 'classes'}:{folder / 'jars'}/*"


def run_java(path: str, main_class: str, *arguments: str, home: Path | None = None) -> list[tuple[str, str, float]]:
    """Run a program; return what it printed: figure, unit, value.

    RocketMQ's client writes logs to its home.
    """
    options = [] if home is None else [f"-Duser.home={home}"]
    command = ["java", "-Xmx2g", *options, "-cp", path, main_class, *arguments]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    samples = [line.split("\t") for line in told.splitlines() if line.startswith("sample\t")]
    return [(figure, unit, float(value)) for _, figure, unit, value in samples]
