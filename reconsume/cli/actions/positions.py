"""`reconsume positions`: where the scheduler workers stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import confirm
from reconsume.cli.output import print_json, print_line, print_table
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.position_list import list_positions, parse_partition, reset_positions

__all__ = ["reset", "show"]


def show(settings: Settings, *, as_json: bool) -> None:
    """All positions."""
    found = list_positions(settings)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            f"{one.topic}-{one.partition}",
            one.offset,
            "none" if one.committed is None else one.committed,
            one.worker or "at least once",
            "" if one.counts else "topic made again: ignored",
        )
        for one in found
    ]
    print_table("positions", ("partition", "position", "committed", "worker", ""), rows)


def reset(settings: Settings, partitions: Sequence[str], *, all_of_them: bool, yes: bool, as_json: bool) -> None:
    """Remove some positions, or all.

    Raises:
        IllegalSetting: neither or both are named, one does not exist, or a worker runs.
    """
    if bool(partitions) == all_of_them:
        raise IllegalSetting("name the partitions as TOPIC-PARTITION, or say --all")
    wanted = None if all_of_them else [parse_partition(one) for one in partitions]
    what = "all positions" if wanted is None else f"the position of {', '.join(partitions)}"
    if not confirm(f"Reset {what}?", yes=yes):
        return
    done = reset_positions(settings, wanted)
    if as_json:
        print_json([asdict(one) for one in done])
    else:
        for one in done:
            print_line(f"{one.topic}-{one.partition}: position removed; a worker begins at the committed offset")
