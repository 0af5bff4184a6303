"""Settings of a Spark for the few records of a test."""

from __future__ import annotations

from typing import Final

FEW_RECORDS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Compiling a query costs more than interpreting it for a few records; the tests of the commands compile theirs."""
