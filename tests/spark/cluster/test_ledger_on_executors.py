"""Readers and the ledger on three executors as on one; a file of its own, which runs beside the test of findings."""

from __future__ import annotations

import pytest

from tests.spark.cluster.executors import require_passing

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]
GROWS = "reconcile/test_reconcile.py::test_a_ledger_grows_and_what_is_settled_is_not_read_again"


@pytest.mark.more
@pytest.mark.early(4)
def test_readers_and_a_growing_ledger_work_on_three_executors(bootstrap_servers: str) -> None:
    require_passing(bootstrap_servers, "test_readers.py", GROWS)


@pytest.mark.long
def test_ledgers_whose_runs_die_work_on_three_executors(bootstrap_servers: str) -> None:
    require_passing(bootstrap_servers, "reconcile/test_ledger.py")
