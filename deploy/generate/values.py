"""The chart's values as their comments describe them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["CHART", "Value", "read_values"]

CHART: Final = Path(__file__).parents[1] / "helm" / "reconsume"


@dataclass(frozen=True, slots=True)
class Value:
    """One key of values.yaml; `children` if it is a map with fixed keys."""

    path: tuple[str, ...]
    default: Any
    text: str
    schema: dict[str, Any]
    children: tuple[Value, ...] = ()

    def leaves(self) -> Iterator[Value]:
        """Yield every key that has its own default."""
        for child in self.children:
            yield from child.leaves()
        if not self.children:
            yield self


def read_values(file: Path = CHART / "values.yaml") -> Value:
    """Return the root of all values.

    Raises:
        ValueError: a key that has no comment and is no map of such.
    """
    text = file.read_text(encoding="utf-8")
    node = yaml.compose(text)
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{file} is no map")  # noqa: TRY004 - the file is wrong, not a type
    return _value((), node, text.splitlines(), "", {})


def _value(path: tuple[str, ...], node: yaml.Node, lines: list[str], text: str, schema: dict[str, Any]) -> Value:
    default = yaml.safe_load(yaml.serialize(node))
    if not isinstance(node, yaml.MappingNode) or text:
        return Value(path, default, text, schema)
    children = []
    for key, one in node.value:
        own_text, own_schema = _comment(lines, key.start_mark.line)
        if not own_text and not isinstance(one, yaml.MappingNode):
            raise ValueError(f"values.yaml:{key.start_mark.line + 1}: {key.value} has no comment that begins with --")
        children.append(_value((*path, key.value), one, lines, own_text, own_schema))
    return Value(path, default, text, schema, tuple(children))


def _comment(lines: list[str], line: int) -> tuple[str, dict[str, Any]]:
    """Return the comment above a line: its text and additions to the schema."""
    first = line
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    above = lines[first:line]
    start = next((number for number, one in enumerate(above) if one.lstrip().startswith("# -- ")), None)
    if start is None:
        return "", {}
    schema: dict[str, Any] = {}
    words = []
    for one in above[start:]:
        said = one.strip().removeprefix("# ").removeprefix("-- ")
        if said.startswith("@schema "):
            schema |= json.loads(said.removeprefix("@schema "))
        else:
            words.append(said)
    return " ".join(words), schema
