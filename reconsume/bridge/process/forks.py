"""Methods that release in a forked child what belongs to its parent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakMethod

_methods: Final[set[WeakMethod[Callable[[], Any]]]] = set()


def call_in_children(method: Callable[[], Any]) -> None:
    """Call a bound method in every child that is forked while its object lives; it must not wait."""
    _methods.add(WeakMethod(method, _methods.discard))


def _call_all() -> None:
    for one in list(_methods):
        if (method := one()) is not None:
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_call_all)
