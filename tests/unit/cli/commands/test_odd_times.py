"""A moment that no calendar has, in a record that somebody else wrote, stays a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconsume.cli.actions.jobs import job_row
from reconsume.cli.commands.quarantine import _summary
from reconsume.delay_levels.wire.jobs.job_records import JobSpec
from reconsume.delay_levels.wire.properties import Header
from reconsume.delay_levels.wire.quarantine import Quarantined
from reconsume.delay_levels.wire.resend import DeadLetterInfo
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letters import DeadLetterRecord
from reconsume.operations.jobs.letter_files import letter_file
from reconsume.operations.jobs.records import Job
from reconsume.operations.quarantine.records import QuarantineRecord
from reconsume.operations.record_address import RecordAddress

ODD_MS = 10**17
NONE: list[Header] = []


def test_in_a_list_of_jobs() -> None:
    job = Job("resend-1", JobSpec("resend", "g", ODD_MS, "alice", "", "reconsume.DLQ.g", "id", {}))
    assert job_row(job, 0)["created"] == str(ODD_MS)


def test_in_a_list_of_the_quarantine() -> None:
    told = Quarantined(NONE, "why", Position("reconsume.DELAY.10s", 0, 0), 0)
    one = QuarantineRecord(RecordAddress(0, 0), None, None, told, ODD_MS, "OPEN")
    assert _summary(one)["since"] == str(ODD_MS)


def test_in_a_parquet_file(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 - only here

    info = DeadLetterInfo.of("g", Position("reconsume.DLQ.g", 0, 0), NONE)
    file = letter_file("parquet", None, tmp_path / "letters.parquet")
    file.write(DeadLetterRecord("reconsume.DLQ.g", RecordAddress(0, 0), None, None, NONE, ODD_MS, info))
    file.close()
    times = parquet.read_table(tmp_path / "letters.parquet")["dead_since"]
    assert times.cast(pa.int64()).to_pylist() == [ODD_MS]
