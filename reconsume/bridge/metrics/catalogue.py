"""Every metric of the project: name, kind, unit, labels and what to do about it. All are made from here.

`docs/metrics.md`, dashboards and alerts are made from the same entries, so none names a metric that does not exist.
"""

from __future__ import annotations

from typing import Final

from reconsume.bridge.metrics.console import CONSOLE
from reconsume.bridge.metrics.consumer import CONSUMER
from reconsume.bridge.metrics.scheduler import SCHEDULER
from reconsume.bridge.metrics.sidecar import SIDECAR
from reconsume.bridge.metrics.spec import MetricSpec

__all__ = ["CATALOGUE", "MOST_GROUPS", "OTHER_GROUPS", "metric"]


MOST_GROUPS: Final = 1_000
"""Groups that have a label of their own in a scheduler; what clients write in a header must not fill the memory."""
OTHER_GROUPS: Final = "(other)"


def metric(name: str) -> MetricSpec:
    """The entry with that name; KeyError if there is none."""
    return _BY_NAME[name]


CATALOGUE: Final[tuple[MetricSpec, ...]] = (*SCHEDULER, *CONSUMER, *SIDECAR, *CONSOLE)
_BY_NAME: Final = {one.name: one for one in CATALOGUE}
