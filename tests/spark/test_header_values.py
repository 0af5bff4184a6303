"""Headers are read as the rules read them, whatever is written in them."""

from __future__ import annotations

import random
import re
from contextlib import suppress

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from reconsume.delay_levels.errors import MalformedProperty
from reconsume.delay_levels.wire.properties import count_property, integer_property
from reconsume.spark_connectors.headers import HeaderColumns, is_written_so

ODD = [
    *("", "0", "00", "-0", "+0", ".", "0.", ".0", "-", "+", " 0", "0 ", "7", "07", "+7", "-7", " 7", "7 ", "7\n", "7."),
    *("7.0", "7.9", "1e3", "0x7", "7L", "1_000", "٣", "9", "10", "99", "100", "-10", "2147483647", "2147483648"),
    *("-2147483648", "999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "09223372036854775807", "0" * 19, "0" * 20, "-" + "0" * 19, "a", "null", "\x00"),
]


def integer(text: str) -> int | None:
    with suppress(MalformedProperty):
        return integer_property([("N", text.encode())], "N")
    return None


def not_negative(text: str) -> int | None:
    with suppress(MalformedProperty):
        return count_property([("N", text.encode())], "N")
    return None


def count(text: str) -> int | None:
    number = not_negative(text)
    return number if number is not None and number < 2**31 else None


def test_a_number_is_one_in_each_spelling_that_the_rules_take(spark: SparkSession) -> None:
    chance = random.Random(7)
    cases = [*ODD, *map(str, (chance.randrange(10**size) for size in range(1, 20) for _ in range(5)))]
    cases += ["".join(chance.choices("0123456789.+- ", k=chance.randint(1, 4))) for _ in range(2_000)]
    frame = spark.createDataFrame([(case,) for case in dict.fromkeys(cases)], "text string")
    header = F.struct(F.lit("N").alias("key"), F.col("text").cast("binary").alias("value"))
    headers = HeaderColumns(F.array(header))
    number = F.col("text").try_cast("bigint")
    rows = frame.select(
        "text",
        headers.integer("N").alias("integer"),
        headers.not_negative("N").alias("not_negative"),
        headers.count("N").alias("count"),
        is_written_so(number, F.col("text")).alias("written"),
    ).collect()
    assert {row.text: (row.integer, row.not_negative, row["count"]) for row in rows} == {
        case: (integer(case), not_negative(case), count(case)) for case in cases
    }
    # No regular expression for what is written as a number is written.
    fast = {row.text for row in rows if row.written}
    assert fast == {case for case in cases if re.fullmatch(r"0|[1-9][0-9]{0,17}", case, re.ASCII)}


def test_of_duplicates_the_last_counts_and_a_null_value_is_there(spark: SparkSession) -> None:
    written = [
        ([("a", b"1"), ("b", b"2"), ("a", b"3")], (b"3", b"2", None), (1, 2, 0)),
        ([("a", b"1"), ("a", None)], (None, None, None), (1, 0, 0)),
        ([("c", b"")], (None, None, b""), (0, 0, 1)),
        ([], (None, None, None), (0, 0, 0)),
        (None, (None, None, None), (None, None, None)),
    ]
    frame = spark.createDataFrame(
        [(number, headers) for number, (headers, _, _) in enumerate(written)],
        "number INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )
    headers = HeaderColumns(F.col("headers"))
    columns = [headers.raw(name).alias(f"raw_{name}") for name in "abc"]
    columns += [headers.place(name).alias(f"at_{name}") for name in "abc"]
    found = frame.select("number", *columns).orderBy("number").collect()
    raws = [tuple(None if row[f"raw_{name}"] is None else bytes(row[f"raw_{name}"]) for name in "abc") for row in found]
    assert raws == [values for _, values, _ in written]
    assert [tuple(row[f"at_{name}"] for name in "abc") for row in found] == [places for _, _, places in written]
