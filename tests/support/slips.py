"""What listeners do wrong: each slip with what the cause of its message says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from reconsume.consumers import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, Message

__all__ = ["IN_ANY_WAY", "IN_BOTH_WAYS", "IN_ORDER", "RAISED", "Mute", "Slip", "setting"]

Act = Callable[[Sequence[Message], Any], Any]
LATER, SUCCESS = ConsumeConcurrentlyStatus.RECONSUME_LATER, ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Slip(NamedTuple):
    """What the listener does, and the words of the cause."""

    act: Act
    cause: str


class Mute(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise TypeError("no text")


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class Lies(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307 - that is what is wrong with it


class Text(str):
    """A text that raises wherever it can."""

    __slots__ = ()

    def encode(self, *_: object, **__: object) -> bytes:
        raise SystemExit(2)

    def __len__(self) -> int:
        raise SystemExit(3)

    def __eq__(self, other: object) -> bool:
        raise SystemExit(4)

    __hash__ = None  # type: ignore[assignment]


class Poisoned(Exception):
    """An error whose attributes raise, and whose text is no plain one."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        return Text("poisoned")


class Hostile:
    """A value that raises whatever it is asked."""

    def _raise(self, *_: object) -> Any:
        raise SystemExit(5)

    __getattribute__ = __repr__ = __str__ = __eq__ = __lt__ = __bool__ = __index__ = __int__ = _raise
    __hash__ = None  # type: ignore[assignment]


def _raising(make: Callable[[], BaseException]) -> Act:
    def act(_messages: Sequence[Message], _context: Any) -> Any:
        raise make()

    return act


def _recursing(messages: Sequence[Message], context: Any) -> Any:
    return _recursing(messages, context)


def _generator(_messages: Sequence[Message], _context: Any) -> Iterator[None]:
    yield None


async def _coroutine() -> None:
    """Nobody awaits it."""


def _unawaited(_messages: Sequence[Message], _context: Any) -> Any:
    coroutine = _coroutine()
    coroutine.close()
    return coroutine


def setting(name: str, value: object, status: object) -> Act:
    """A listener that sets something in its context and returns a status."""

    def act(_messages: Sequence[Message], context: Any) -> Any:
        setattr(context, name, value)
        return status

    return act


def _deleting(name: str, status: object) -> Act:
    def act(_messages: Sequence[Message], context: Any) -> Any:
        delattr(context, name)
        return status

    return act


def _changing(act: Act) -> Act:
    def changed(messages: Sequence[Message], context: Any) -> Any:
        act(messages, context)
        return None

    return changed


def _set_offset(messages: Sequence[Message], _context: Any) -> None:
    messages[0].offset = None  # type: ignore[misc,assignment]


def _empty_batch(messages: Any, _context: Any) -> None:
    messages.clear()


def _endless_cause() -> BaseException:
    first, second = ValueError("the first"), KeyError("the second")
    first.__cause__, second.__cause__ = second, first
    return first


RAISED = {
    "no text": Slip(_raising(Mute), "Mute, whose __str__ raised TypeError"),
    "a text that exits": Slip(_raising(Exits), "Exits, whose __str__ raised SystemExit"),
    "a text that is a number": Slip(_raising(Lies), "Lies, whose __str__ raised TypeError"),
    "attributes that raise": Slip(_raising(Poisoned), "poisoned"),
    "a text that is long": Slip(_raising(lambda: ValueError("x" * 1_000_000)), "xxx"),
    "a circle of causes": Slip(_raising(_endless_cause), "the first"),
    "SystemExit": Slip(_raising(lambda: SystemExit(1)), "1"),
    "KeyboardInterrupt": Slip(_raising(KeyboardInterrupt), "KeyboardInterrupt"),
    "GeneratorExit": Slip(_raising(GeneratorExit), "GeneratorExit"),
    "CancelledError": Slip(_raising(asyncio.CancelledError), "CancelledError"),
    "StopIteration": Slip(_raising(StopIteration), "StopIteration"),
    "MemoryError": Slip(_raising(MemoryError), "MemoryError"),
    "RecursionError": Slip(_recursing, "maximum recursion depth exceeded"),
}
"""Whatever the listener is for."""

CHANGED = {
    "an offset that is set": Slip(_changing(_set_offset), "offset"),
    "a batch that is emptied": Slip(_changing(_empty_batch), "has no attribute 'clear'"),
}
"""What listeners may try to do to their messages."""

IN_ANY_WAY = (
    RAISED
    | CHANGED
    | {
        f"returns {name}": Slip(act, "the listener returned")
        for name, act in {
            "a generator": _generator,
            "a coroutine": _unawaited,
            "True": lambda _messages, _context: True,
            "a text": lambda _messages, _context: "CONSUME_SUCCESS",
            "a hostile value": lambda _messages, _context: Hostile(),
            "the status of an orderly listener": lambda _messages, _context: ConsumeOrderlyStatus.SUCCESS,
        }.items()
    }
)
"""Of a concurrent listener, apart from its context."""

_NO_INTS = {"NoneType": None, "str": "5", "float": 2.0, "timedelta": timedelta(seconds=5), "bool": True}

IN_BOTH_WAYS = (
    {
        f"{name} is {kind}": Slip(setting(name, value, status), f"{name} must be an int, got {kind}")
        for name, status in (("delay_level_when_next_consume", LATER), ("ack_index", SUCCESS))
        for kind, value in (_NO_INTS | {"Hostile": Hostile()}).items()
    }
    | {
        f"{name} is deleted": Slip(_deleting(name, status), name)
        for name, status in (("delay_level_when_next_consume", LATER), ("ack_index", SUCCESS))
    }
    | {"ack_index is -2": Slip(setting("ack_index", -2, SUCCESS), "ack_index is -2")}
)
"""Of the context of a concurrent listener."""

_AGAIN = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
IN_ORDER = (
    RAISED
    | CHANGED
    | {
        f"suspend_current_queue_time_millis is {kind}": Slip(
            setting("suspend_current_queue_time_millis", value, _AGAIN),
            f"suspend_current_queue_time_millis must be an int, got {kind}",
        )
        for kind, value in (_NO_INTS | {"Hostile": Hostile()}).items()
    }
    | {
        f"auto_commit is {kind}": Slip(
            setting("auto_commit", value, ConsumeOrderlyStatus.SUCCESS), f"auto_commit must be a bool, got {kind}"
        )
        for kind, value in {"NoneType": None, "str": "False", "int": 0, "Hostile": Hostile()}.items()
    }
    | {
        "auto_commit is deleted": Slip(_deleting("auto_commit", ConsumeOrderlyStatus.SUCCESS), "auto_commit"),
        "suspend_current_queue_time_millis is deleted": Slip(
            _deleting("suspend_current_queue_time_millis", _AGAIN), "suspend_current_queue_time_millis"
        ),
        "returns the status of a concurrent listener": Slip(
            lambda _messages, _context: SUCCESS, "the listener returned"
        ),
        "returns a hostile value": Slip(lambda _messages, _context: Hostile(), "the listener returned"),
    }
)
"""Of an orderly listener."""
