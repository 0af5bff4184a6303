"""Level tables and policies, as a reconcile reads them in the GROUPS topic."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from reconsume.spark_connectors.reconcile.judged import _tables


@pytest.mark.parametrize("value", [b"[" * 200_000, b"\xff", b"17", b'{"groupRetryPolicy": {"type": "NONE"}}'])
def test_an_unreadable_record_of_a_group_leaves_the_defaults(value: bytes) -> None:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [7_000]}}
    told = {
        "bad": SimpleNamespace(value=value, set_at=1),
        "good": SimpleNamespace(value=json.dumps({"groupRetryPolicy": policy}).encode(), set_at=1),
    }
    tables = _tables(told)
    assert list(tables.of_group) == ["good"]
