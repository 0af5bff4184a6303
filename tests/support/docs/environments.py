"""Virtual environments as a user of the checkout makes them: from the wheel, with the extras that a page names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.waiting import PATIENCE

__all__ = ["Environment", "build_wheel", "make_environment"]

_ROOT: Final = Path(__file__).parents[3]
_PIN: Final = re.compile(r"^[\w.\[\]-]+==[^\s\\]+(?: ;[^\\]*)?", re.MULTILINE)
_DEADLINE_SECONDS: Final = 400.0


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment and the environment variables of its user."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin" / "python")

    def command(self, name: str) -> str:
        """The path of one of its commands."""
        return str(self.folder / "bin" / name)

    def install(self, what: str) -> None:
        """Install what pip understands, at the versions that are tested."""
        constraints = self.folder / "constraints.txt"
        pins = _PIN.findall((_ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8"))
        constraints.write_text("\n".join(re.sub(r"\[.*?\]", "", pin) for pin in pins))
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--quiet", "--disable-pip-version-check"]
        # Python compiles what a test imports; pip would compile all of pyspark.
        install = [*pip, "install", "--no-compile", "--constraint", str(constraints), what]
        subprocess.run(install, check=True, timeout=_DEADLINE_SECONDS)

    def shell(self, text: str, cwd: Path) -> str:
        """Run the lines of a page as they are in a shell, and return what they print.

        Raises:
            AssertionError: it did not end with 0.
        """
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=cwd,
            env=self._variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_DEADLINE_SECONDS,
        )
        assert run.returncode == 0, f"{text}\nended with {run.returncode}\n{run.stdout}{run.stderr}"
        return run.stdout

    @contextmanager
    def running(self, command: Sequence[str], cwd: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A command of this environment in the background, its output in a file; SIGTERM at the end.

        Raises:
            AssertionError: SIGTERM did not end it within the deadline.
        """
        with out.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=cwd, env=self._variables(), stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        try:
            yield process
            process.terminate()
            assert process.wait(PATIENCE) in (0, -15), out.read_text()
        finally:
            process.kill()
            process.wait()

    def _variables(self) -> dict[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RECONSUME_"))}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return ours | {"PATH": path, "PYTHONUNBUFFERED": "1", **self.variables}


def build_wheel(folder: Path) -> Path:
    """Build the wheel of the checkout into the folder."""
    build = [*(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")]
    subprocess.run([*build, "--wheel-dir", str(folder), str(_ROOT)], check=True)
    (built,) = folder.glob("reconsume-*.whl")
    return built


def make_environment(wheel: Path, folder: Path, extras: str = "", **variables: str) -> Environment:
    """Make an empty virtual environment and install the wheel with these extras, at the versions that are tested.

    Args:
        wheel: as `build_wheel` made it.
        folder: where the environment is made.
        extras: comma-separated, as between the brackets of `pip install '.[…]'`.
        variables: for everything that runs in it.
    """
    # With the pip of the checkout's environment: a pip in each takes longer to install than what is tested.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    made = Environment(folder, variables)
    made.install(f"{wheel}[{extras}]" if extras else str(wheel))
    return made
