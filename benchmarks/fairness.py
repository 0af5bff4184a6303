"""How late ten records of one group are while another group floods the same lane."""

from __future__ import annotations

import time

from confluent_kafka import Producer

from benchmarks.installation import fill, install, read_all, scheduler
from reconsume.bridge.process.settings import Settings

_FEW = 10
_READY_SECONDS = 4
_APART_SECONDS = 0.05


def measure_fairness(bootstrap_servers: str, flood: int) -> None:
    """Print the lateness of the ten, and of the flood, in milliseconds."""
    settings = install(bootstrap_servers)
    lane, names = settings.names.delay(1_000), settings.names
    with scheduler(settings):
        time.sleep(_READY_SECONDS)
        begun = time.monotonic()
        fill(settings, lane, flood)
        filled = time.monotonic() - begun
        _few(settings, lane)
        stored = {(key, group): stamp for group, key, stamp in _by_group(settings, {lane: 4}, flood + _FEW)}
        few = _lateness(settings, stored, names.retry("few"), "few", _FEW)
        many = _lateness(settings, stored, names.retry("bench"), "bench", flood)
    print(
        f"flood of {flood:,} within {filled:.1f} s: ten records of another group behind it are late by "
        f"{few[len(few) // 2]} ms (p50), {few[-1]} ms (max); the flood itself by {many[-1]} ms (max)"
    )


def _few(settings: Settings, lane: str) -> None:
    """One after the other, on all partitions of the lane."""
    producer = Producer(settings.client_settings() | {"linger.ms": 0})
    for number in range(_FEW):
        producer.produce(lane, b"x", b"few%d" % number, headers=[("REAL_TOPIC", b"%RETRY%few")])
        producer.flush()
        time.sleep(_APART_SECONDS)


def _by_group(settings: Settings, partitions: dict[str, int], records: int) -> list[tuple[str, bytes | None, int]]:
    found = read_all(settings, partitions, records)
    return [("few" if (key or b"").startswith(b"few") else "bench", key, stamp) for _, key, stamp in found]


def _lateness(
    settings: Settings, stored: dict[tuple[bytes | None, str], int], topic: str, group: str, records: int
) -> list[int]:
    moved = read_all(settings, {topic: 1}, records)
    return sorted(stamp - stored[key, group] - 1_000 for _, key, stamp in moved)
