"""Memory of a scheduler worker with 10,000 and with 1,000,000 records waiting: it must not depend on the backlog."""

from __future__ import annotations

import re
import time
from pathlib import Path

from benchmarks.installation import fill, install, scheduler

__all__ = ["measure_memory", "resident_mib"]

SETTLE_SECONDS = 20


def resident_mib(pid: int) -> tuple[float, float]:
    """Resident memory of a process, now and at its peak (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    now, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return now, peak


def measure_memory(bootstrap_servers: str) -> None:
    """Print the resident memory after the worker has read ahead as far as it wants (Linux)."""
    for records in (10_000, 1_000_000):
        settings = install(bootstrap_servers, "1h")
        fill(settings, settings.names.delay(3_600_000), records)
        with scheduler(settings) as process:
            time.sleep(SETTLE_SECONDS)
            now, peak = resident_mib(process)
        print(f"{records:,} records waiting: {now:.0f} MiB resident, {peak:.0f} MiB at its peak")
