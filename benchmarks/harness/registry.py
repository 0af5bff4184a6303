"""Measurements by name: functions that yield the samples of one round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, cast

__all__ = ["COMPARED", "CPU", "MEASUREMENTS", "RATE", "Measurement", "Place", "Sample", "measurement", "percentiles"]

RATE: Final = "× rate"
"""A rate as a multiple of another rate in the same round; more is better."""
CPU: Final = "× CPU"
"""CPU time per record as a multiple of another one in the same round; less is better."""
COMPARED: Final = {RATE: 1, CPU: -1}
"""Units that later runs are compared by, and the sign of an improvement."""

_T = TypeVar("_T")


class Sample(NamedTuple):
    """One value of one round; `case` is what was done, `figure` what was counted."""

    case: str
    figure: str
    unit: str
    value: float


@dataclass
class Place:
    """The broker of a run, and the size of the measurements.

    Attributes:
        bootstrap_servers: of a local Kafka.
        data_folder: where that Kafka keeps its data.
        quick: small sizes, ratios only.
        large: sizes that take an hour and many gigabytes, too.
        turn: the number of the round, from 0.
    """

    bootstrap_servers: str
    data_folder: str = ""
    quick: bool = False
    large: bool = False
    turn: int = 0
    _kept: dict[str, object] = field(default_factory=dict)

    def size(self, full: int, quick: int) -> int:
        """Return the number of records for the size of the run."""
        return quick if self.quick else full

    def in_turn(self, things: Iterable[_T]) -> Sequence[_T]:
        """Return them in this round's order; pairs run in both orders, so that neither is always the warm one."""
        listed = list(things)
        return listed[::-1] if self.turn % 2 else listed

    def once(self, name: str, make: Callable[[], _T]) -> _T:
        """Return what `make` returned in the first round: a backlog that is only read serves all rounds."""
        if name not in self._kept:
            self._kept[name] = make()
        return cast("_T", self._kept[name])


@dataclass(frozen=True, slots=True)
class Measurement:
    """A named measurement.

    Attributes:
        name: on the command line.
        run: yields the samples of a round.
        about: one line.
        rounds: how often it runs in a full run, and in a quick one; 0 leaves it out there.
        is_peer: measures another product.
    """

    name: str
    run: Callable[[Place], Iterator[Sample]]
    about: str
    rounds: int
    quick_rounds: int
    is_peer: bool


MEASUREMENTS: Final[dict[str, Measurement]] = {}


def measurement(
    name: str, *, rounds: int = 3, quick_rounds: int = 0, is_peer: bool = False
) -> Callable[[Callable[[Place], Iterator[Sample]]], Callable[[Place], Iterator[Sample]]]:
    """Register a function; the first line of its docstring describes it."""

    def register(run: Callable[[Place], Iterator[Sample]]) -> Callable[[Place], Iterator[Sample]]:
        about = (run.__doc__ or name).strip().splitlines()[0]
        MEASUREMENTS[name] = Measurement(name, run, about, rounds, quick_rounds, is_peer)
        return run

    return register


def percentiles(case: str, milliseconds: Iterable[float], unit: str = "ms") -> Iterator[Sample]:
    """Yield p50, p99, p99.9 and the maximum."""
    ordered = sorted(milliseconds)
    if ordered:
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            yield Sample(case, name, unit, ordered[min(len(ordered) - 1, int(len(ordered) * share))])
        yield Sample(case, "max", unit, ordered[-1])
