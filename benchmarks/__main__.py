"""Measure this project, and peers, on this machine.

    python -m benchmarks                     all measurements
    python -m benchmarks throughput fairness these
    python -m benchmarks --quick             ratios against benchmarks/results.json; exits 1 on a regression
    python -m benchmarks --peers             other products, and what they are compared with

Results go to dist/benchmarks as JSON, Markdown and SVG.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

# Importing a module registers its measurements.
from benchmarks import consumers, operating, send_backs, sidecar, spark  # noqa: F401
from benchmarks.harness.compare import regressions, unknown
from benchmarks.harness.plots import plots
from benchmarks.harness.registry import MEASUREMENTS, Measurement, Place
from benchmarks.harness.results import Result, read_runs, table, write_run
from benchmarks.harness.run import local_place, measure, run_result
from benchmarks.peers import measurements as peers  # noqa: F401
from benchmarks.scheduler import (  # noqa: F401
    fairness,
    footprint,
    lateness,
    many_topics,
    new_groups,
    throughput,
)

RECORDED: Final = Path(__file__).with_name("results.json")
BESIDE_PEERS: Final = ("throughput", "lateness", "send-backs", "redelivery")
RECORDED_ROUNDS: Final = 5


def main() -> int:
    options = _options()
    kind = "quick" if options.quick else "peers" if options.peers else "full"
    chosen = _chosen(options.names, kind)
    if options.quick and not options.record and "quick" not in read_runs(RECORDED):
        sys.exit(f"{RECORDED} has no ratios to compare with; run: python -m benchmarks --quick --record")

    def rounds(one: Measurement) -> int:
        if options.quick:
            return RECORDED_ROUNDS if options.record else one.quick_rounds or 1
        return options.rounds or one.rounds

    with local_place(quick=options.quick, large=options.large) as place:
        results = measure(place, chosen, rounds)
        worse = _worse(place, results) if options.quick and not options.record else []
    run = run_result(results)
    options.out.mkdir(parents=True, exist_ok=True)
    write_run(options.out / "results.json", kind, run)
    (options.out / f"{kind}.md").write_text(table(results), "utf-8")
    for name, drawing in plots(results).items():
        (options.out / f"{kind}-{name}").write_text(drawing, "utf-8")
    if options.record:
        write_run(RECORDED, kind, run)
    print(table(results))
    for line in worse:
        print(f"regression: {line}")
    return 1 if worse else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=__doc__,
        epilog="\n".join(f"  {one.name:23} {one.about}" for one in MEASUREMENTS.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="measurements; without one all of the kind")
    parser.add_argument("--quick", action="store_true", help="small sizes, compared with the recorded ratios")
    parser.add_argument("--peers", action="store_true", help="other products, and what they are compared with")
    parser.add_argument(
        "--large", action="store_true", help="10,000,000 waiting records and 1,000,000 dead letters too (8 GB of disk)"
    )
    parser.add_argument("--rounds", type=int, default=0, help="in place of each measurement's own number")
    parser.add_argument("--record", action="store_true", help=f"write the figures to {RECORDED.name} beside the code")
    parser.add_argument("--out", type=Path, default=Path("dist/benchmarks"), help="folder (dist/benchmarks)")
    return parser.parse_args()


def _chosen(names: list[str], kind: str) -> list[Measurement]:
    missing = [name for name in names if name not in MEASUREMENTS]
    if missing:
        sys.exit(f"unknown measurement {missing[0]!r}; known: {', '.join(MEASUREMENTS)}")
    if names:
        return [MEASUREMENTS[name] for name in names]
    if kind == "peers":
        return [one for one in MEASUREMENTS.values() if one.is_peer or one.name in BESIDE_PEERS]
    return [one for one in MEASUREMENTS.values() if not one.is_peer and (kind == "full" or one.quick_rounds)]


def _worse(place: Place, results: list[Result]) -> list[str]:
    """Return the regressions that a second look confirms, and figures that cannot be compared."""
    recorded = read_runs(RECORDED)
    before = recorded["quick"].results if "quick" in recorded else []
    found = {one.now.key for one in regressions(before, results)}
    again = [MEASUREMENTS[name] for name in dict.fromkeys(name for name, _, _ in found)]
    second = measure(place, again, lambda one: one.quick_rounds)
    lines = [str(one) for one in regressions(before, second) if one.now.key in found]
    for one in unknown(before, results):
        print(f"not recorded: {', '.join(one.key)}", file=sys.stderr)
    return lines


if __name__ == "__main__":
    sys.exit(main())
