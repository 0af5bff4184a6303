"""Where a page continues, as an address or a command line says it."""

from __future__ import annotations

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations import dead_letters
from reconsume.operations.dead_letter_index.pages import indexed_page
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import read_page

HUGE = "9" * 5_000


@pytest.mark.parametrize("before", ["x", "0:", "0:1,", f"0:{HUGE}", "0:\u0663", "-1:0"])
def test_one_that_kafka_never_gave_is_refused(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setattr(dead_letters, "find_partitions", lambda *_: [])
    monkeypatch.setattr(dead_letters, "find_spans", lambda *_: {})
    cluster = Cluster(Settings(bootstrap_servers="127.0.0.1:1"))
    monkeypatch.setitem(cluster.__dict__, "admin", None)
    with pytest.raises(IllegalSetting, match="is not the end of a page"):
        read_page(cluster, "departures", before=before)


@pytest.mark.parametrize("before", ["i1:2", "i9999999999999999999:0:1", f"i1:0:{HUGE}"])
def test_one_that_the_index_never_gave_is_refused(before: str) -> None:
    with DeadLetterStore() as store, pytest.raises(IllegalSetting, match="is not the end of a page"):
        indexed_page(store, "departures", "reconsume.DLQ.departures", DeadLetterFilter(), before, 50)
