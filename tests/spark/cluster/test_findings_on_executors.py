"""The same findings on three executors as on one; a file of its own, which runs beside the tests of the ledger."""

from __future__ import annotations

import pytest

from tests.spark.cluster.executors import require_passing

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(4), pytest.mark.timeout(1800)]


def test_the_findings_are_the_same_on_three_executors(bootstrap_servers: str) -> None:
    clean = "reconcile/test_reconcile.py::test_a_clean_history_agrees_with_a_count_made_without_spark"
    require_passing(bootstrap_servers, "reconcile/test_pairing.py", "reconcile/test_faults.py", clean)
