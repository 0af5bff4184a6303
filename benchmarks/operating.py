"""What an operator waits for: the console's pages, and `reconsume status`, with many groups and dead letters.

The console and the command are processes of their own, beside the broker.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Producer

from benchmarks.harness.registry import Place, Sample, measurement
from benchmarks.installation import installed, make_stamped, produce_one, resident_mib
from reconsume.bridge.process.settings import Settings
from reconsume.cli.broker.ports import free_port
from reconsume.delay_levels.wire.properties import DLQ_ERRORS

LETTERS: Final = (10_000, 1_000_000)
GROUPS: Final = 200
MANY_GROUPS: Final = (GROUPS, 1_000)
VIEWS: Final = 5
OF_THE_FLOOD: Final = 0.92
DEADLINE_SECONDS: Final = 600.0

_CAUSES: Final = (("TimeoutError", "no answer from db-{}.internal:5432 within 30 s"), ("KeyError", "order {}"))


@measurement("console", rounds=1)
def console(place: Place) -> Iterator[Sample]:
    """Pages with 200 groups and 10,000 dead letters (with --large 1,000,000), nearly all in one group."""
    groups = [f"group-{number:03}" for number in range(GROUPS)]
    for letters in LETTERS if place.large else LETTERS[:1]:
        with installed(place.bootstrap_servers, "1s 2s") as settings:
            make_stamped(settings, [settings.names.retry(one) for one in groups])
            make_stamped(settings, [settings.names.dead_letter(one) for one in groups])
            _bury(settings, groups, letters)
            case = f"{letters:,} dead letters of {GROUPS} groups"
            with _console(settings) as (process, address):
                began = time.monotonic()
                yield Sample(case, "first page, right after the start", "ms", _first_page(address))
                yield Sample(case, "figures, after the start", "s", _seconds_until_figures(address, began))
                indexed = _seconds_until_figures(address, began, with_index=True)
                yield Sample(case, "index complete, after the start", "s", indexed)
                for name, path in _pages(groups[0]).items():
                    yield Sample(case, name, "ms", statistics.median(_ms(address, path) for _ in range(VIEWS)))
                yield Sample(case, "peak of memory", "MiB", resident_mib(process)[1])


@measurement("status")
def status(place: Place) -> Iterator[Sample]:
    """`reconsume status` with 200 and 1,000 groups that have failed messages."""
    for count in MANY_GROUPS[: place.size(2, 1)]:
        groups = [f"group-{number:04}" for number in range(count)]
        with installed(place.bootstrap_servers, "1s 2s") as settings:
            for name in (settings.names.retry, settings.names.dead_letter):
                make_stamped(settings, [name(one) for one in groups])
            producer = Producer(settings.client_settings())
            for number, group in enumerate(groups):
                produce_one(producer, settings.names.retry(group), number, group=group)
            producer.flush()
            command = [sys.executable, "-m", "reconsume", "status", "-o", "json"]
            began = time.monotonic()
            subprocess.run(command, env=_environment(settings), check=True, stdout=subprocess.DEVNULL)
            yield Sample(f"{count:,} groups", "reconsume status", "s", time.monotonic() - began)


def _pages(group: str) -> dict[str, str]:
    letters = f"/groups/{group}/dead-letters"
    return {
        "first page": "/",
        "page of the group": f"/groups/{group}",
        "list by key": f"{letters}?key=k500",
        "list by a text": f"{letters}?text=db-77.internal",
        "list by a text that is in none": f"{letters}?text=nothing-has-this",
    }


def _bury(settings: Settings, groups: Sequence[str], letters: int) -> None:
    """Write dead letters, nearly all of the first group."""
    producer = Producer(settings.client_settings() | {"linger.ms": 20})
    others = groups[1:]
    for number in range(letters):
        is_in_flood = number % 100 < 100 * OF_THE_FLOOD
        group = groups[0] if is_in_flood else others[number % len(others)]
        name, text = _CAUSES[0 if is_in_flood else 1]
        cause = [(f"{DLQ_ERRORS}exception.class", name), (f"{DLQ_ERRORS}message", text.format(number % 100))]
        produce_one(producer, settings.names.dead_letter(group), number, group=group, more=cause)
    producer.flush()


def _environment(settings: Settings) -> dict[str, str]:
    own = {"RECONSUME_TOPIC_PREFIX": settings.topic_prefix, "RECONSUME_BOOTSTRAP_SERVERS": settings.bootstrap_servers}
    return dict(os.environ) | own


@contextmanager
def _console(settings: Settings) -> Iterator[tuple[int, str]]:
    """Run a console with an empty index; yield its process id and the address of its pages."""
    listen, management = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="reconsume-bench-") as folder:
        command = [sys.executable, "-m", "reconsume", "console", "--listen", listen, "--management", management]
        command += ["--index-folder", folder, "--log-level", "ERROR"]
        process = subprocess.Popen(command, env=_environment(settings))
        try:
            yield process.pid, listen
        finally:
            process.terminate()
            process.wait()


def _first_page(address: str) -> float:
    """Return the milliseconds of the first page that is served."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            return _ms(address, "/")
        except ConnectionError:
            time.sleep(0.02)
    raise TimeoutError(f"{address} serves nothing within {DEADLINE_SECONDS:.0f} s")


def _ms(address: str, path: str) -> float:
    began = time.monotonic()
    _get(address, path)
    return (time.monotonic() - began) * 1_000


def _get(address: str, path: str) -> bytes:
    status, body = _answer(address, path)
    if status != 200:
        raise RuntimeError(f"{path}: {status}: {body[:200]!r}")
    return body


def _answer(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _seconds_until_figures(address: str, began: float, *, with_index: bool = False) -> float:
    """Wait for the overview, which is refused before the first reading, and for the whole index; return the time."""
    while (passed := time.monotonic() - began) < DEADLINE_SECONDS:
        status, body = _answer(address, "/api/v1/overview")
        if status == 200 and not (with_index and json.loads(body)["left_to_index"] != 0):
            return passed
        time.sleep(0.05)
    raise TimeoutError(f"the console at {address} has no figures within {DEADLINE_SECONDS:.0f} s")
