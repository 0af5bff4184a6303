"""The modules of the package, read and parsed once for all tests of one process."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import reconsume

__all__ = ["PACKAGE", "modules"]

PACKAGE: Final = Path(reconsume.__file__).parent


@cache
def modules() -> dict[Path, ast.Module]:
    """Every Python file of the package, parsed; paths are relative to the package."""
    return {path.relative_to(PACKAGE): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
