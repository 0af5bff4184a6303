"""A property that is computed once, without a lock.

`functools.cached_property` of Python 3.11 takes a lock that all objects of a class share, so listener threads wait for
each other. Remove when Python 3.12 is the oldest that is supported: its `cached_property` has no lock.
Test: tests/unit/consumers/test_lazy.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

__all__ = ["lazy"]

T = TypeVar("T")


class lazy(Generic[T]):  # noqa: N801 - used as `property` is
    """Threads that ask at the same time compute it twice, and get equal values."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        """Is not asked again: the value stands in the object from then on."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
