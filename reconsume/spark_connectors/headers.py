"""Headers as columns: Spark returns them as an array of (key, value) with repeated keys.

Everything is an expression that Spark compiles. Malformed headers give null, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

_INTEGER: Final = r"\A-?[0-9]{1,19}\z"
_COUNT: Final = r"\A(?:[0-9]{1,19}|-0{1,19})\z"
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999; Spark's own conversion fails far beyond it."""


class HeaderColumns:
    """The headers of a record by name; of duplicates the last counts.

    Args:
        headers: an array of (key string, value binary), or null.
        names: a column with the names of all headers, the last first; by default it is part of each use.
        places: columns with the known results of `place` for some names. They save a search for each use.
        numbers: columns with the known results of `count` or `integer` for some names.
        raws: columns with the known results of `raw` for some names.
    """

    def __init__(
        self,
        headers: Column,
        names: Column | None = None,
        places: Mapping[str, Column] | None = None,
        numbers: Mapping[str, Column] | None = None,
        raws: Mapping[str, Column] | None = None,
    ) -> None:
        self._headers = headers
        self._names = names_of(headers) if names is None else names
        self._places = dict(places or {})
        self._numbers = dict(numbers or {})
        self._raws = dict(raws or {})

    def has(self, name: str) -> Column:
        """Return whether a header of this name exists; a null value counts."""
        return F.coalesce(self.place(name) > 0, F.lit(False))

    def place_from_end(self, name: str) -> Column:
        """Return 1 for the last header of the record, 2 for the one before it; null if the name is missing."""
        return F.nullif(self.place(name), F.lit(0))

    def raw(self, name: str) -> Column:
        """Return its bytes; null if it is missing or has no value."""
        if name in self._raws:
            return self._raws[name]
        # Of a missing header the place is 0, so the index is beyond the last one, for which `get` returns null.
        return F.get(self._headers, (F.size(self._headers) - self.place(name)).cast("int"))["value"]

    def text(self, name: str) -> Column:
        """Return its text; bytes that are not UTF-8 become U+FFFD."""
        return F.make_valid_utf8(self.raw(name).cast("string"))

    def integer(self, name: str) -> Column:
        """Return its decimal number as a bigint; null if it is not one."""
        if name in self._numbers:
            return self._numbers[name]
        text = self.raw(name).cast("string")
        number = text.try_cast("bigint")
        return F.when(is_written_so(number, text) | text.rlike(_INTEGER), number)

    def not_negative(self, name: str) -> Column:
        """Return its decimal number as a bigint; null if it is none, or below 0."""
        return F.when(self.integer(name) >= 0, self.integer(name))

    def count(self, name: str) -> Column:
        """Return its number from 0 to 2147483647 as an int, else null."""
        if name in self._numbers:
            return self._numbers[name]
        text = self.raw(name).cast("string")
        number = text.try_cast("int")
        return F.when(is_written_so(number, text) | text.rlike(_COUNT), number)

    def moment(self, name: str) -> Column:
        """Return its milliseconds since the epoch as a timestamp, else null."""
        return moment(self.integer(name))

    def place(self, name: str) -> Column:
        """Return 1 for the last header of the record, 2 for the one before it; 0 if the name is missing."""
        return self._places.get(name, F.array_position(self._names, name))

    def spoiled(self, name: str, wanted: Column) -> Column:
        """Return the name, if the header exists without a valid value; else null."""
        return F.when(self.has(name) & wanted.isNull(), F.lit(name))

    def spoiled_text(self, name: str) -> Column:
        """Return the name, if the header exists and its value is null or not UTF-8; else null."""
        return F.when(self.has(name) & is_missing_text(self.raw(name)), F.lit(name))


def names_of(headers: Column) -> Column:
    """Return the names of an array of headers, the last first.

    The names alone are reversed: with the whole array Spark would make a row object for each header, twice.
    """
    return F.reverse(headers["key"])


def is_written_so(number: Column, text: Column) -> Column:
    """Return whether a text is the number as we write it; other spellings need a slower regular expression.

    A text as long as the number has digits holds nothing else: signs, zeros, spaces and fractions, which Spark reads
    too, are longer. This makes no text of the number. It is not true for negative numbers and those of 19 digits.
    """
    powers = F.array(*(F.lit(10**exponent).cast("bigint") for exponent in range(19)))
    digits = F.octet_length(text)
    has_digits = (number >= F.get(powers, digits - 1)) & (number < F.get(powers, digits))
    return F.coalesce((text == "0") | has_digits, F.lit(False))


def is_missing_text(raw: Column) -> Column:
    """Return whether bytes are null or not UTF-8."""
    return raw.isNull() | ~F.is_valid_utf8(raw.cast("string"))


def moment(milliseconds: Column) -> Column:
    """Convert milliseconds to a timestamp; null before 1970 and after 9999."""
    return F.when(milliseconds.between(0, _LAST_MS), F.timestamp_millis(milliseconds))


def present_texts(*texts: Column) -> Column:
    """Return the texts that are not null as an array; they contain no comma.

    The higher-order function at the end is for speed. A step without one becomes a single Java method, here of some
    40,000 bytes, and Java compiles no method above 8,000; a step with one becomes many small methods. The function
    handles only rare values, because Spark interprets it.
    """
    joined = F.concat_ws(",", *texts)
    return F.when(joined == "", F.array().cast("array<string>")).otherwise(
        F.filter(F.split(joined, ","), lambda text: text != "")
    )
