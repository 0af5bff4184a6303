"""`reconsume broker`: a real Kafka in the foreground."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from rich.console import Console

from reconsume.cli.broker.kafka import BrokerFailed, LocalKafka

__all__ = ["run_broker"]


def run_broker(port: int, data_dir: Path | None) -> None:
    """Start Kafka, print its address, and run until Ctrl-C or SIGTERM.

    Raises:
        BrokerFailed: it did not start, or it ended by itself.
    """
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    console = Console(stderr=True)
    with console.status("starting Kafka") as status:
        kafka = LocalKafka(port, data_dir=data_dir, progress=status.update)
        kafka.start()
    try:
        print(f"bootstrap.servers: {kafka.bootstrap_servers}", flush=True)  # noqa: T201 - the command's output
        console.print(f"log: {kafka.log_file}; stop with Ctrl-C", highlight=False)
        while not stop.wait(0.5):
            if not kafka.alive():
                raise BrokerFailed(f"Kafka ended by itself; its last lines:\n{kafka.log_tail()}")
    finally:
        kafka.stop()
