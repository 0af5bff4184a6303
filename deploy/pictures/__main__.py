"""`python -m deploy.pictures [NAME …]`: take the screenshots again, from a Kafka of its own with real flights.

Names: demo, status, console, report. It needs chromium for the last two, and some minutes.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from deploy.pictures.terminal import screen, terminal_svg
from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.kafka.clients import make_producer
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.topics.topics import install
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.cli.broker.ports import free_port
from reconsume.cli.demo.rows import read_rows
from reconsume.consumers import ConsumeConcurrentlyStatus, PushConsumer
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
NAMES: Final = ("demo", "status", "console", "report")
ROWS: Final = 3_000
_COMMAND: Final = (sys.executable, "-P", "-m", "reconsume")
_ENV: Final = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
_SIZES: Final = {"console": "1180,900", "report": "1180,1000"}
_CAUSE: Final = "TimeoutError: gate <n> did not answer within <n> s"
_PAGES: Final = {
    "console": "/dead-letters",
    "console-group": "",
    "console-dry-run": "/job?" + urlencode({"kind": "resend", "label": _CAUSE}),
}
"""Pictures of the console, and the pages of a group that they show."""
_SCHEMES: Final = {"": "1", "-dark": "0"}
"""Suffixes of files, and the names of the light and the dark scheme in Blink."""
_IN_BOTH: Final = ("console", "reconcile-report")
"""Pictures on pages that follow the reader's scheme; other pictures are light."""


def main() -> None:
    """Take the named pictures, or all."""
    logging.getLogger("reconsume").setLevel(logging.CRITICAL)  # the listener fails on purpose
    names = sys.argv[1:] or NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        sys.exit(f"no picture is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if {"console", "report"} & set(names) and browser is None:
        sys.exit("chromium is missing: install it, or name only demo and status")
    if "demo" in names:
        _save_terminal("demo", "reconsume demo", screen([*_COMMAND, "demo"], _ENV))
    if {"status", "console", "report"} & set(names):
        _of_an_installation(names, browser or "")


def _of_an_installation(names: Sequence[str], browser: str) -> None:
    with ExitStack() as stack:
        kafka = stack.enter_context(LocalKafka())
        env = _ENV | {"RECONSUME_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        stack.enter_context(_lived(kafka.bootstrap_servers, env, stack))
        if "status" in names:
            shown = screen([*_COMMAND, "status", "--watch"], env, 120, first_screens=1)
            _save_terminal("status", "reconsume status --watch", shown)
        if "console" in names:
            address = f"127.0.0.1:{free_port()}"
            stack.enter_context(
                _running(["console", "--listen", address, "--management", f"127.0.0.1:{free_port()}"], env)
            )
            _wait_for(f"http://{address}/")
            time.sleep(10)  # the index is filled
            for name, path in _PAGES.items():
                _shoot(browser, name, f"http://{address}/groups/departures{path}")
        if "report" in names:
            report = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "report.html"
            subprocess.run([*_COMMAND, "reconcile", "--report", str(report)], env=env, check=False)
            _shoot(browser, "reconcile-report", report.as_uri(), _SIZES["report"])


@contextmanager
def _lived(bootstrap_servers: str, env: dict[str, str], stack: ExitStack) -> Iterator[None]:
    """Run an installation with schedulers, where flights wait, were retried, and are dead for four causes."""
    cluster = Cluster(Settings(bootstrap_servers=bootstrap_servers))
    install(cluster, SystemConfig(message_delay_level=DEFAULT_LEVEL_TABLE))
    cluster.admin.create("flights", 4, -1, {})
    for number in (1, 2):
        management = f"127.0.0.1:{free_port()}"
        stack.enter_context(_running(["scheduler", "--instance-id", f"s{number}", "--management", management], env))
        _wait_for(f"http://{management}/readyz")
    consumer = PushConsumer("departures", bootstrap_servers=bootstrap_servers, conf={"auto.offset.reset": "earliest"})
    consumer.subscribe("flights").register_message_listener(_fail_sometimes)
    producer = make_producer(cluster.base)
    for number, row in enumerate(islice(read_rows(None), ROWS)):
        producer.produce("flights", f'{{"number": {number}, "flight": "{row["flight"]}"}}', str(row["flight"]))
        producer.poll(0)
    producer.flush()
    with consumer:
        time.sleep(45)  # the first retries are done, others wait
        yield


def _fail_sometimes(messages: Sequence[Any], context: Any) -> ConsumeConcurrentlyStatus:
    number = int(messages[0].body.partition(b":")[2].partition(b",")[0])
    if number % 100 in {1, 2, 3, 4}:  # at once dead
        context.delay_level_when_next_consume = -1
        if number % 100 == 1:
            raise KeyError("dep_time")
        if number % 100 == 2:  # noqa: PLR2004
            raise ValueError(f"flight {number} has no tail number")
        raise TimeoutError(f"gate {number % 7} did not answer within 3 s")
    if number % 20 == 5 and messages[0].reconsume_times < 2:  # noqa: PLR2004
        raise ConnectionError(f"airport-db-{number % 3}.internal:5432 refused the connection")
    if number % 50 == 7:  # noqa: PLR2004
        context.delay_level_when_next_consume = 14 + number % 5
        return ConsumeConcurrentlyStatus.RECONSUME_LATER
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@contextmanager
def _running(words: Sequence[str], env: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen([*_COMMAND, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own address
            return
        time.sleep(0.3)
    raise RuntimeError(f"{url} gives no answer")


def _save_terminal(name: str, prompt: str, shown: str) -> None:
    (IMAGES / f"{name}.svg").write_text(terminal_svg(prompt, shown), encoding="utf-8")


def _shoot(browser: str, name: str, url: str, size: str = _SIZES["console"]) -> None:
    for ending, scheme in _SCHEMES.items() if name in _IN_BOTH else [("", "1")]:
        subprocess.run(
            [
                *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--window-size={size}", f"--blink-settings=preferredColorScheme={scheme}"),
                *(f"--screenshot={IMAGES / (name + ending)}.png", url),
            ],
            check=True,
            timeout=120,
            stderr=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main()
