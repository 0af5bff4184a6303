"""Exceptions of callbacks, which `poll` raises.

confluent-kafka (2.16, `cfl_exception_fetch`) keeps the value of an exception that a callback raised, and raises it
again by the type of that value. Before Python 3.12 an exception of C code is made only when Python code handles it.
Until then its value is a `KafkaError` or a text. So after `assign` failed in a rebalance callback, `poll` raised a
`KafkaError`, which no `except` catches and which ended the process; after `len(5)` in `error_cb`, a `SystemError`.
Upstream issue: none was found.
Tests: tests/unit/bridge/librdkafka/test_callback_errors.py,
tests/contract/test_drop_in.py::test_a_callback_must_assign_as_the_strategy_does.

Remove when: Python 3.11 is no longer supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def catchable(callback: Callable[P, R]) -> Callable[P, R]:
    """Return a callback whose exceptions can be caught where `poll` raises them."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return callback(*args, **kwargs)
        except BaseException:  # noqa: TRY203 - to handle an exception makes it
            raise

    return call


def with_catchable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's settings with such callbacks; its logger is an object."""
    return {name: catchable(one) if callable(one) and name != "logger" else one for name, one in settings.items()}
