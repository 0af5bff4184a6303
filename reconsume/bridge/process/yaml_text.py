"""YAML as people mean it: keys count as they are written, and a key that is written twice is refused."""

from __future__ import annotations

from typing import Any, Final

import yaml

_MERGE: Final = "tag:yaml.org,2002:merge"
_STRING: Final = "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Check the keys before merges (`<<`) add others to them, which may be overridden."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set[str]()
        for number, (key, value) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is written twice", key.start_mark
                    )
                seen.add(key.value)
                node.value[number] = yaml.ScalarNode(_STRING, key.value, key.start_mark, key.end_mark), value
        return node


def parse_yaml(text: str) -> Any:
    """Return the contents of a document.

    Raises:
        ValueError: it is not YAML, or holds a key twice; the message says where.
    """
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe one
    except (yaml.YAMLError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
