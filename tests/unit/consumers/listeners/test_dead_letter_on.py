"""Which failures are not worth a retry."""

from __future__ import annotations

import pytest

from reconsume.consumers.listeners.dead_letter_on import exception_classes, is_listed, is_named
from reconsume.delay_levels.errors import IllegalSetting


class NoDepartureTime(ValueError):
    """A subclass of what is listed."""


def raises(_error: BaseException) -> type:
    raise SystemExit(1)


Nasty: type[BaseException] = type(
    "Nasty", (RuntimeError,), {"__class__": property(raises), "__cause__": property(raises)}
)
"""Raises when anybody looks at it."""


def raised(
    error: BaseException, *, cause: BaseException | None = None, handling: BaseException | None = None
) -> object:
    error.__context__ = handling
    if cause is not None:
        BaseException.__dict__["__cause__"].__set__(error, cause)
    return error


def cycle() -> BaseException:
    first, second = RuntimeError(), RuntimeError()
    first.__cause__, second.__cause__ = second, first
    return first


def cycle_through_a_group() -> BaseException:
    inner = RuntimeError()
    inner.__cause__ = ExceptionGroup("tasks", [inner])
    return inner


@pytest.mark.parametrize(
    ("error", "listed"),
    [
        (ValueError(), True),
        (NoDepartureTime(), True),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no text"), True),
        (RuntimeError(), False),
        (raised(RuntimeError(), cause=ValueError()), True),
        (raised(RuntimeError(), cause=raised(OSError(), cause=NoDepartureTime())), True),  # type: ignore[arg-type]
        (raised(ConnectionError(), handling=ValueError()), False),
        (raised(Nasty(), cause=ValueError()), True),
        (Nasty(), False),
        (SystemExit(1), False),
        (ExceptionGroup("tasks", [ValueError(), NoDepartureTime()]), True),
        (ExceptionGroup("tasks", [ValueError(), ConnectionError()]), False),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [ValueError()])]), True),
        (raised(ExceptionGroup("tasks", [ConnectionError()]), cause=ValueError()), True),
        (cycle(), False),
        (cycle_through_a_group(), False),
        (None, False),
        ("ValueError", False),
        (ValueError, False),
    ],
    ids=repr,
)
def test_an_error_its_subclasses_and_what_it_was_raised_from_count(error: object, listed: bool) -> None:
    assert is_listed(error, (ValueError, KeyError)) is listed


def test_the_same_error_twice_in_a_group_counts_twice() -> None:
    error = ValueError()
    assert is_listed(ExceptionGroup("tasks", [error, error]), (ValueError,))


def test_nothing_is_listed_by_default() -> None:
    assert not is_listed(ValueError(), ())


@pytest.mark.parametrize("given", [(ValueError, KeyError), [ValueError], {ValueError}, frozenset([ValueError]), ()])
def test_a_collection_of_exception_classes_is_taken(given: object) -> None:
    assert ValueError in exception_classes(given) or given == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (ValueError, r"must be a tuple of exception classes such as \(ValueError,\), got <class 'ValueError'>"),
        ("ValueError", "must be a tuple of exception classes .*, got 'ValueError'"),
        (None, "got None"),
        (("ValueError",), "must hold exception classes such as ValueError, got 'ValueError'"),
        ((ValueError("x"),), r"must hold exception classes .*, got ValueError\('x'\)"),
        ((int,), "got <class 'int'>"),
    ],
)
def test_anything_else_is_refused(given: object, told: str) -> None:
    with pytest.raises(IllegalSetting, match=f"^dead_letter_on {told}" if told.startswith("must") else told):
        exception_classes(given)


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("java.lang.IllegalArgumentException", True),
        ("ParseError", True),
        ("app.errors.ParseError", True),
        ("org.example.IllegalArgumentException", False),
        ("MyParseError", False),
        ("parseerror", False),
        (None, False),
    ],
)
def test_a_name_without_a_dot_stands_for_every_package(kind: str | None, listed: bool) -> None:
    assert is_named(kind, ("java.lang.IllegalArgumentException", "ParseError")) is listed
