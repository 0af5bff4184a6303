"""Look at values that user code hands in: none of this raises what the value raises."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["plain_text", "shown", "type_name", "whole_number"]

_LONGEST_TEXT: Final = 16_384
_LONGEST_SHOWN: Final = 200
_LARGEST: Final = 2**31 - 1


def plain_text(say: Callable[[], str], longest: int = _LONGEST_TEXT) -> str:
    """What the call gives, cut and fit for UTF-8; empty where it raises or gives something else."""
    try:
        # `str()` gives a subclass of str as it is, with its own methods; a slice by str's own never is one.
        return str.__getitem__(say(), slice(longest)).encode(errors="replace").decode()
    except BaseException:  # noqa: BLE001 - a `__str__` may raise SystemExit
        return ""


def type_name(kind: type) -> str:
    """The name of a type, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(kind))


def shown(value: object) -> str:
    """A value in an error message."""
    return plain_text(lambda: repr(value), _LONGEST_SHOWN) or f"an object of type {type_name(type(value))}"


def whole_number(value: object, name: str) -> int:
    """The value as an int of RocketMQ's 32 bits; others are cut to that.

    Raises:
        IllegalSetting: it is a bool, or nothing that counts as an int.
    """
    try:
        if type(value) is not bool:
            return max(-_LARGEST - 1, min(operator.index(value), _LARGEST))  # type: ignore[arg-type]
    except BaseException:  # noqa: BLE001, S110 - an `__index__` may raise anything
        pass
    raise IllegalSetting(f"{name} must be an int, got {type_name(type(value))}")
