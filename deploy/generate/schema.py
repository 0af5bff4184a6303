"""Generates values.schema.json from the values, their comments, and the settings."""

from __future__ import annotations

from typing import Any, Final

from deploy.generate.values import Value
from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.sidecar.settings import ProcessSettings

__all__ = ["values_schema"]

_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
_OF_TEXTS: Final = ("labels", "annotations", "nodeselector")
_OF_OTHERS: Final = {
    "global": {"type": "object", "description": "shared by the charts of a release"},
    "enabled": {"type": "boolean", "description": "for the condition of a chart that depends on this one"},
    "sops": {"type": "object", "description": "written by sops"},
}


def values_schema(root: Value) -> dict[str, Any]:
    """Return the schema that Helm checks values against; it refuses unknown keys wherever this chart fixes the keys."""
    schema = _object(root)
    schema["properties"] |= _OF_OTHERS
    schema["patternProperties"] = {"^x-": {}}
    settings = ProcessSettings.model_json_schema()
    group = SubscriptionGroupConfig.model_json_schema(by_alias=True)
    group["properties"].pop("groupName")
    group |= {"additionalProperties": False}
    group.pop("required")
    definitions = settings.pop("$defs", {}) | group.pop("$defs", {})
    definitions |= {"Settings": settings, "SubscriptionGroupConfig": group}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart reconsume",
        **schema,
        "$defs": {name: _without_noise(one) for name, one in definitions.items()},
    }


def _object(value: Value) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        # Helm takes away what is null, such as a section whose lines are all comments.
        "required": [one.path[-1] for one in value.children if one.children or one.path == ("config",)],
        "properties": {one.path[-1]: _one(one) for one in value.children},
    }


def _one(value: Value) -> dict[str, Any]:
    if value.children:
        return _object(value)
    if "$ref" in value.schema:
        # Draft 7 does not look at what stands beside a reference.
        return {"description": value.text, "allOf": [value.schema]}
    schema: dict[str, Any] = {"description": value.text}
    if isinstance(value.default, dict):
        schema["type"] = "object"
        if value.path[-1].lower().endswith(_OF_TEXTS):
            # Kubernetes takes no numbers there; null takes a default away.
            schema["additionalProperties"] = {"type": ["string", "null"]}
        elif value.path[-1] == "resources":
            schema["additionalProperties"] = {"type": ["object", "array", "null"]}
    elif "enum" not in value.schema:
        schema["type"] = _TYPES[type(value.default)] if value.default is not None else "null"
    return schema | value.schema


def _without_noise(schema: Any) -> Any:
    """Remove Pydantic's titles, which repeat the names, and its defaults, which may change without the chart."""
    if isinstance(schema, list):
        return [_without_noise(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_noise(one) for name, one in value.items()}
        if key == "properties"
        else _without_noise(value)
        for key, value in schema.items()
        if key not in ("title", "default", "description", "format", "writeOnly")
    }
