"""`reconsume broker`: a real Kafka in the foreground."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from reconsume.cli.broker.kafka import BrokerFailed, LocalKafka
from reconsume.cli.output import print_json_line, print_line, tell
from reconsume.cli.progress import working

__all__ = ["run_broker"]


class _Interrupted(BaseException):
    """A signal to stop came while Kafka was not up yet."""


def run_broker(port: int, data_dir: Path | None, *, as_json: bool = False) -> None:
    """Start Kafka, print its address, and run until Ctrl-C or SIGTERM.

    Raises:
        BrokerFailed: it did not start, or it ended by itself.
        SystemExit: 128 + the signal's number, if it came before Kafka was up.
    """
    stop = threading.Event()
    with working("starting Kafka") as say:
        kafka = LocalKafka(port, data_dir=data_dir, progress=say)
        try:
            _start(kafka, stop)
        except BaseException:
            kafka.stop()
            raise
    try:
        if as_json:
            print_json_line({"bootstrap.servers": kafka.bootstrap_servers, "log": str(kafka.log_file)})
        else:
            print_line(f"bootstrap.servers: {kafka.bootstrap_servers}")
        tell(f"log: {kafka.log_file}; stop with Ctrl-C")
        while not stop.wait(0.5):
            if not kafka.alive():
                raise BrokerFailed(f"Kafka ended by itself; its last lines:\n{kafka.log_tail()}")
    finally:
        kafka.stop()


def _start(kafka: LocalKafka, stop: threading.Event) -> None:
    """Looking for Java and downloading may take minutes, so until Kafka is up a signal ends what is being done."""
    starting = True

    def on_signal(number: int, _frame: FrameType | None) -> None:
        first = not stop.is_set()
        stop.set()
        if starting and first:
            raise _Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    try:
        kafka.start()
        starting = False
    except _Interrupted as interrupted:
        sys.exit(128 + interrupted.args[0])
