"""Nothing is resolved without a reason, one by one or by a job."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.jobs.service import JobDraft, create
from reconsume.operations.quarantine.changes import resolve_quarantined
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import resolve

CLUSTER = Cluster(Settings(bootstrap_servers="nowhere:1"))
PLACES = [RecordAddress(0, 0)]


@pytest.mark.parametrize(
    "change",
    [
        lambda: resolve(CLUSTER, "departures", PLACES, by="bob", why=" "),
        lambda: create(CLUSTER, JobDraft("resolve", "departures"), by="bob", why=" "),
        lambda: resolve_quarantined(CLUSTER, PLACES, by="bob", why=" "),
    ],
)
def test_a_blank_reason_is_refused_before_kafka_is_asked(
    change: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CLUSTER.__dict__, "admin", None)
    with pytest.raises(IllegalSetting, match="resolving needs a reason; give one with --why"):
        change()
