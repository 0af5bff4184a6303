"""YAML as people mean it: keys count as they are written, and a key that is written twice is refused."""

from __future__ import annotations

from typing import Any, Final

import yaml

_MERGE: Final = "tag:yaml.org,2002:merge"
_STRING: Final = "tag:yaml.org,2002:str"


class _Refused(yaml.MarkedYAMLError):
    """A key or value that this module refuses; the text quotes no value."""


_QUOTES_NOTHING: Final = (_Refused, yaml.scanner.ScannerError, yaml.parser.ParserError)
"""Errors that quote at most one character, except for those about tag handles."""


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check the keys before merges (`<<`) add others to them, which may be overridden."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set[str]()
        for number, (key, value) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise _Refused(None, None, f"key {key.value!r} is written twice", key.start_mark)
                seen.add(key.value)
                node.value[number] = yaml.ScalarNode(_STRING, key.value, key.start_mark, key.end_mark), value
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Turn errors of any type, for values that do not fit their tags, into one with a line."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError):
            raise _Refused(None, None, "illegal date, number or other value; quote it", node.start_mark) from None


def parse_yaml(text: str) -> Any:
    """Return the contents of a document.

    Raises:
        ValueError: it is not YAML, or holds a key twice; the message says where. It quotes no value, which may be a
            secret, and at most one character of it.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        raise ValueError(_told(error)) from None
    except yaml.reader.ReaderError as error:
        raise ValueError(f"{error.reason} (at position {error.position})") from None
    except (ValueError, OverflowError, RecursionError):
        raise ValueError("a value is nested too deeply, or has an illegal escape sequence") from None


def _told(error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong and where. The error's own text has the line, and may have the value as a tag or alias."""
    at = error.problem_mark
    where = f" (at line {at.line + 1}, column {at.column + 1})" if at else ""
    problem = error.problem or ""
    if not isinstance(error, _QUOTES_NOTHING) or "tag handle" in problem:
        return f"unknown tag or alias, illegal merge or key, or a second document; quote values with ! or *{where}"
    context = f"{error.context} from line {error.context_mark.line + 1}: " if error.context_mark else ""
    return f"{context}{problem}{where}"
