"""Findings, pairs, readers and ledgers on three executors as on one."""

from __future__ import annotations

import pytest

from tests.spark.cluster.executors import require_passing

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]


@pytest.mark.more
@pytest.mark.early(4)
def test_reconcile_and_readers_work_on_three_executors(bootstrap_servers: str) -> None:
    require_passing(
        bootstrap_servers,
        "reconcile/test_faults.py::test_nothing_else_is_found",
        "reconcile/test_pairing.py::test_copies_of_one_attempt_are_paired_in_their_order",
        "reconcile/test_pairing.py::test_many_that_are_alike_are_paired_in_the_order_of_time_without_squares",
        "test_readers.py::test_several_kinds_in_one_pass",
        "test_readers.py::test_a_stream_tells_the_same",
    )


@pytest.mark.long
def test_ledgers_that_grow_and_whose_runs_die_work_on_three_executors(bootstrap_servers: str) -> None:
    require_passing(
        bootstrap_servers,
        "reconcile/test_ledger.py",
        "reconcile/test_reconcile.py::test_a_clean_history_agrees_with_a_count_made_without_spark",
        "reconcile/test_reconcile.py::test_a_ledger_grows_and_what_is_settled_is_not_read_again",
    )
