"""A resolve while a job of the group writes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.writing import exclusive_writer
from reconsume.delay_levels.errors import WriterReplaced
from reconsume.operations import resolve as resolve_module
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import resolve

LETTER = SimpleNamespace(key_of_state="reconsume.DLQ.g/0/0/5")


def test_a_resolve_that_a_job_fences_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []

    def counts(name: str, result: Any = None) -> Callable[..., Any]:
        def call(*_args: object, **_options: object) -> Any:
            did.append(name)
            return result

        return call

    def write(_writer: object, records: list[object]) -> None:
        did.append(f"write {len(records)}")
        if did.count("take over") < 3:
            raise WriterReplaced("a job has taken over")

    states = SimpleNamespace(of=counts("states"), catch_up=counts("catch up"))
    monkeypatch.setattr(resolve_module, "read_these", counts("letters", [LETTER]))
    monkeypatch.setattr(resolve_module, "StatesReader", lambda *_args, **_options: states)
    monkeypatch.setattr(exclusive_writer.ExclusiveWriter, "take_over", counts("take over"))
    monkeypatch.setattr(exclusive_writer.ExclusiveWriter, "write_records", write)
    monkeypatch.setattr(exclusive_writer, "wait_until_shown", counts("shown"))
    monkeypatch.setattr(exclusive_writer, "time", SimpleNamespace(sleep=lambda _seconds: None))
    cluster: Any = Cluster(Settings(bootstrap_servers="127.0.0.1:9"), lambda: 5.0)
    monkeypatch.setattr(cluster, "require", lambda topic: topic)
    [changed] = resolve(cluster, "g", [RecordAddress(0, 0)], by="alice", why="too old")
    assert changed.is_changed
    assert did[0] == "letters", "before it fences the job"
    assert [did.count(one) for one in ("letters", "take over", "catch up", "write 1", "shown")] == [1, 3, 3, 3, 1]
