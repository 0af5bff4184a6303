"""`reconsume chaos`."""

from __future__ import annotations

import logging
import random
import signal
import sys
from importlib.util import find_spec

from reconsume.cli.chaos.run import ChaosOptions, print_report, run_chaos
from reconsume.cli.output import tell
from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["chaos"]


def chaos(seed: int | None, minutes: float, brokers: int, rate: float, *, sidecar: bool, as_json: bool) -> bool:
    """Run it and print the figures; whether all promises were kept."""
    if brokers not in (1, 3):
        raise IllegalSetting(f"--brokers {brokers}: 1, or 3 that lose one at a time")
    if sidecar and find_spec("uvicorn") is None:
        raise IllegalSetting("--sidecar: needs what a sidecar needs: pip install '.[cli,sidecar]' in the checkout")
    # None of the processes under test stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # That brokers go away is no news here.
    logging.getLogger("reconsume.bridge").setLevel(logging.CRITICAL)
    options = ChaosOptions(random.randrange(1, 1_000_000) if seed is None else seed, minutes, brokers, rate, sidecar)  # noqa: S311
    tell(f"seed {options.seed}; the same seed, minutes, brokers and kinds give the same faults")
    report = run_chaos(options, tell)
    print_report(report, as_json=as_json)
    return report.ok
