"""`reconsume broker`: a real Kafka in the foreground."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Final

from reconsume.cli.broker.kafka import BrokerFailed, LocalKafka
from reconsume.cli.common import stop_at_signals
from reconsume.cli.output import print_json_line, print_line, tell
from reconsume.cli.progress import working

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_broker(port: int, data_dir: Path | None, *, as_json: bool = False) -> None:
    """Start Kafka, print its address, and run until Ctrl-C or SIGTERM.

    The search for Java and the download may take minutes, so until Kafka is up a signal ends the current step.

    Raises:
        BrokerFailed: Kafka did not start, or ended by itself.
        SystemExit: 128 + the number of a signal before Kafka was up.
    """
    with working("starting Kafka") as say:
        kafka = LocalKafka(port, data_dir=data_dir, progress=say)
        for number in _SIGNALS:
            signal.signal(number, _exit)
        try:
            kafka.start()
        except BaseException:
            kafka.stop()
            raise
    stop = stop_at_signals()
    try:
        if as_json:
            print_json_line({"bootstrap.servers": kafka.bootstrap_servers, "log": str(kafka.log_file)})
        else:
            print_line(f"bootstrap.servers: {kafka.bootstrap_servers}")
        tell(f"log: {kafka.log_file}; stop with Ctrl-C")
        while not stop.wait(0.5):
            if not kafka.alive():
                raise BrokerFailed(f"Kafka ended unexpectedly; its last lines:\n{kafka.log_tail()}")
    finally:
        kafka.stop()


def _exit(number: int, _frame: FrameType | None) -> None:
    """Exit once; after that the orderly end must not be interrupted."""
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)
