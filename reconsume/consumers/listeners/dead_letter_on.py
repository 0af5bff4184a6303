"""Failures that are not worth a retry: `dead_letter_on`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import shown

DEAD_LETTER_LEVEL: Final = -1
"""Requests the dead-letter topic."""

ExceptionClasses = tuple[type[BaseException], ...]

# Slots read as `except` does: an error may override these names with properties that raise.
_CAUSE: Final[Any] = BaseException.__dict__["__cause__"]
_EXCEPTIONS: Final[Any] = BaseExceptionGroup.__dict__["exceptions"]


def exception_classes(given: object) -> ExceptionClasses:
    """Return the classes of a `dead_letter_on` argument.

    Raises:
        IllegalSetting: not a collection of exception classes.
    """
    if not isinstance(given, tuple | list | set | frozenset):
        raise IllegalSetting(
            f"dead_letter_on must be a tuple of exception classes such as (ValueError,), got {shown(given)}"
        )
    for one in given:
        if not (isinstance(one, type) and issubclass(one, BaseException)):
            raise IllegalSetting(f"dead_letter_on must hold exception classes such as ValueError, got {shown(one)}")
    return tuple(given)


def is_listed(error: object, classes: ExceptionClasses) -> bool:
    """Return whether an error, or one of those that it was raised `from`, is of these classes or their subclasses.

    An exception group counts if all of its errors do: a retry may still help the others. An error that was handled
    when this one was raised (`__context__`) does not count.
    """
    if not classes or not issubclass(type(error), BaseException):
        return False
    return _is_listed(cast("BaseException", error), classes, frozenset())


def _is_listed(error: BaseException | None, classes: ExceptionClasses, seen: frozenset[int]) -> bool:
    while error is not None and id(error) not in seen:
        seen |= {id(error)}
        kind = type(error)
        if any(type.__subclasscheck__(one, kind) for one in classes):
            return True
        if type.__subclasscheck__(BaseExceptionGroup, kind) and all(
            _is_listed(one, classes, seen) for one in _EXCEPTIONS.__get__(error)
        ):
            return True
        error = _CAUSE.__get__(error)
    return False


def is_named(kind: str | None, names: Collection[str]) -> bool:
    """Return whether an error type that another program reports is among these names.

    A name without a dot also matches the last part of a dotted type: `ParseError` matches `app.errors.ParseError`.
    """
    return kind is not None and (kind in names or kind.rpartition(".")[2] in names)
