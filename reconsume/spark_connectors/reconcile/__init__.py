"""Reconcile: whether every failed message ended in exactly one state."""

from __future__ import annotations

from reconsume.spark_connectors.reconcile.judged import Committed, Tolerances
from reconsume.spark_connectors.reconcile.records.deleted import Extent
from reconsume.spark_connectors.reconcile.records.grown import ledger_runs, read_ledger
from reconsume.spark_connectors.reconcile.records.ledger_log import LedgerTaken
from reconsume.spark_connectors.reconcile.run import Reconciliation, reconcile
from reconsume.spark_connectors.reconcile.stream import reconcile_stream
from reconsume.spark_connectors.reconcile.summary import conservation, first_findings, summarise
from reconsume.spark_connectors.reconcile.verdicts import FINDINGS, NOTES

__all__ = [
    "FINDINGS",
    "NOTES",
    "Committed",
    "Extent",
    "LedgerTaken",
    "Reconciliation",
    "Tolerances",
    "conservation",
    "first_findings",
    "ledger_runs",
    "read_ledger",
    "reconcile",
    "reconcile_stream",
    "summarise",
]
