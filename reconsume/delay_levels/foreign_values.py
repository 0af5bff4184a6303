"""Safe access to values from user code: no function here raises an exception of the value."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from reconsume.delay_levels.errors import IllegalSetting

T = TypeVar("T")

_LONGEST_TEXT: Final = 16_384
_LONGEST_SHOWN: Final = 200
_LARGEST: Final = 2**31 - 1
_HEADERS: Final = [("trace", b"4bf92f")]
_EXAMPLES: Final = {"timedelta": "timedelta(seconds=10)", "datetime": "datetime.now(UTC)"}


def plain_text(say: Callable[[], str], longest: int = _LONGEST_TEXT) -> str:
    """Return the call's text, shortened and valid as UTF-8; empty if it raises or returns something else."""
    try:
        # `str()` returns a subclass of str unchanged, with its own methods; str's own slice is always a plain str.
        return str.__getitem__(say(), slice(longest)).encode(errors="replace").decode()
    except BaseException:  # noqa: BLE001 - a `__str__` may raise SystemExit
        return ""


def type_name(kind: type) -> str:
    """Return the name of a type, without calling its metaclass."""
    return str(type.__dict__["__name__"].__get__(kind))


def shown(value: object) -> str:
    """Return a value for an error message."""
    return plain_text(lambda: repr(value), _LONGEST_SHOWN) or f"an object of type {type_name(type(value))}"


def regular_expression(text: str, name: str) -> re.Pattern[str]:
    """Compile a pattern.

    Args:
        text: the pattern, as a user wrote it.
        name: what it is, for the error.

    Raises:
        IllegalSetting: it is not a regular expression.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise IllegalSetting(f"{name} {shown(text)} is not a regular expression: {error}") from None


def whole_number(value: object, name: str) -> int:
    """Return the value as an int within RocketMQ's 32 bits; larger values are limited.

    Raises:
        IllegalSetting: a bool, or not an int.
    """
    try:
        if type(value) is not bool:
            return max(-_LARGEST - 1, min(operator.index(value), _LARGEST))  # type: ignore[arg-type]
    except BaseException:  # noqa: BLE001, S110 - an `__index__` may raise anything
        pass
    raise IllegalSetting(f"{name} must be an int, got {type_name(type(value))}")


def checked_headers(headers: Iterable[object]) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a message as a list of tuples, which confluent-kafka needs.

    Raises:
        IllegalSetting: the headers are not pairs of name and value, or a text cannot be encoded in UTF-8.
    """
    if isinstance(headers, Mapping | str | bytes) or not isinstance(headers, Iterable):
        raise IllegalSetting(f"headers must be a list of pairs, such as {_HEADERS}, got {type_name(type(headers))}")
    checked = []
    for one in headers:
        name, value = one if isinstance(one, tuple | list) and len(one) == len(_HEADERS[0]) else (None, None)
        if not (isinstance(name, str) and isinstance(value, str | bytes | None)):
            raise IllegalSetting(f"headers must be pairs of a str and bytes, such as {_HEADERS}, got {shown(one)}")
        check_utf8("a header", name, value)
        if "\0" in name:
            raise IllegalSetting(f"header {shown(name)}: Kafka's client cuts a name at a NUL; leave it out")
        checked.append((name, value))
    return checked


def check_utf8(what: str, *texts: object) -> None:
    """Check that texts can be encoded in UTF-8; confluent-kafka (2.16) crashes on header names that cannot.

    Raises:
        IllegalSetting: a text has half of a surrogate pair.
    """
    for text in texts:
        try:
            if isinstance(text, str):
                str.encode(text)
        except UnicodeEncodeError as error:
            half = f"character {error.start} is half of a pair: {error.object[error.start]!r}"
            raise IllegalSetting(f"{what} must be text that UTF-8 can hold; {half}") from None


def check_json(what: str, value: object) -> None:
    """Check that all texts of a JSON value, names too, can be encoded in UTF-8.

    Raises:
        IllegalSetting: a text has half of a surrogate pair, or the value is nested too deeply.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise IllegalSetting(f"{what} must be nested less deeply") from None
    check_utf8(what, text)


def check_range(name: str, value: int, low: int, high: int) -> int:
    """Return an int argument; raises `IllegalSetting` if it is another type or out of range."""
    number = whole_number(value, name)
    if number != value or not low <= number <= high:  # the value was limited to 32 bits
        raise IllegalSetting(f"{name} must be from {low} to {high}, not {value}")
    return number


def check_types(arguments: Mapping[str, object], /, **kinds: type | tuple[type, ...]) -> None:
    """Check the types of several arguments: `check_types(locals(), topic=str)`.

    Raises:
        IllegalSetting: an argument has another type, or is a text that UTF-8 cannot encode.
    """
    for name, allowed in kinds.items():
        value = of_type(arguments[name], name, *(allowed if isinstance(allowed, tuple) else (allowed,)))
        check_utf8(name, value)


def of_type(value: T, name: str, *kinds: type, such_as: str = "") -> T:
    """Return an argument of one of these types; a bool does not count as an int.

    Args:
        value: the argument.
        name: its name, for the error.
        kinds: the allowed types; `type(None)` for None.
        such_as: an example, for the error.

    Raises:
        IllegalSetting: another type.
    """
    if isinstance(value, kinds) and (type(value) is not bool or bool in kinds):
        return value
    such_as = such_as or next((_EXAMPLES[one] for one in map(type_name, kinds) if one in _EXAMPLES), "")
    example = f", such as {such_as}" if such_as else ""
    raise IllegalSetting(f"{name} must be {' or '.join(map(_words, kinds))}{example}, got {type_name(type(value))}")


def texts(values: Iterable[str], name: str, such_as: str = "['flights']") -> list[str]:
    """Return several texts as a list; a single str is refused, because its letters would count as texts.

    Raises:
        IllegalSetting: not a collection, or one element is not a text.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise IllegalSetting(f"{name} must be a list of str, such as {such_as}, got {type_name(type(values))}")
    return [of_type(one, f"each of {name}", str) for one in values]


def _words(kind: type) -> str:
    if kind is type(None):
        return "None"
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
