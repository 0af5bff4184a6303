"""The lateness of records of groups that a worker has not seen, with retry topics that exist or must be created."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from benchmarks.harness.registry import Place, Sample, measurement, percentiles
from benchmarks.installation import cpu_seconds, fill, installed, make_stamped, read_all, resident_mib, scheduler
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.settings import Settings

DELAY_MS: Final = 5_000
WITHIN_SECONDS: Final = 300


@measurement("new-groups", rounds=1)
def new_groups(place: Place) -> Iterator[Sample]:
    """A record of each of 1,000 groups that a worker has not seen, with their retry topics and without."""
    groups = [f"group-{number}" for number in range(place.size(1_000, 100))]
    for are_made, what in ((True, "are there"), (False, "are made by the worker")):
        with installed(place.bootstrap_servers, f"{DELAY_MS // 1000}s") as settings:
            retries = [settings.names.retry(name) for name in groups]
            if are_made:
                make_stamped(settings, retries)
            with scheduler(settings) as worker:
                worker.seconds_until("/readyz")
                before = cpu_seconds(worker.pid)
                fill(settings, [settings.names.delay(DELAY_MS)], len(groups), groups=groups)
                due_ms = time.time() * 1_000 + DELAY_MS
                _wait_for(settings, retries)
                cpu, (_, peak) = cpu_seconds(worker.pid) - before, resident_mib(worker.pid)
            at = [stored_ms for _, _, stored_ms in read_all(settings, dict.fromkeys(retries, 1), len(groups))]
        case = f"{len(groups):,} groups, retry topics {what}"
        yield from percentiles(case, [max(0.0, one - due_ms) for one in at])
        yield Sample(case, "CPU", "s", cpu)
        yield Sample(case, "a worker's peak of memory", "MiB", peak)


def _wait_for(settings: Settings, topics: list[str]) -> None:
    """Wait until each topic has a record."""
    admin, deadline = KafkaAdmin(settings.client_settings()), time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < deadline:
        known = admin.topics()
        if all(topic in known for topic in topics) and all(admin.end_offsets([(one, 0) for one in topics]).values()):
            return
        time.sleep(0.2)
    raise RuntimeError(f"not every group has its record after {WITHIN_SECONDS} s")
