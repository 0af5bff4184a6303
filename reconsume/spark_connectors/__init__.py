"""Spark connectors: the topics of reconsume as tables. They need only pyspark and the standard library."""

from __future__ import annotations

from reconsume.spark_connectors.connector import configure, packages
from reconsume.spark_connectors.readers import (
    read_dead_letters,
    read_delays,
    read_kinds,
    read_messages,
    read_retries,
)
from reconsume.spark_connectors.reconcile import Reconciliation, Tolerances, reconcile
from reconsume.spark_connectors.schema import SCHEMA
from reconsume.spark_connectors.views import create_views

__all__ = [
    "SCHEMA",
    "Reconciliation",
    "Tolerances",
    "configure",
    "create_views",
    "packages",
    "read_dead_letters",
    "read_delays",
    "read_kinds",
    "read_messages",
    "read_retries",
    "reconcile",
]
