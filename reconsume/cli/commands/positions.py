"""`reconsume positions`: the positions of the scheduler workers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, confirm, on_kafka
from reconsume.cli.output import print_json, print_line, print_table
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.position_list import list_positions, parse_partition, reset_positions

app = typer.Typer()


@on_kafka(app, "list")
def show(here: Here) -> None:
    """List the position of each partition beside its committed offset; workers start at the larger one."""
    found = list_positions(here.cluster)
    if here.as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (
            f"{one.topic}-{one.partition}",
            one.offset,
            "none" if one.committed is None else one.committed,
            one.worker or "at least once",
            "" if one.counts else "other topic id: ignored",
        )
        for one in found
    ]
    print_table("positions", ("partition", "position", "committed", "worker", ""), rows)


@on_kafka(app, "reset")
def reset(
    here: Here,
    partitions: Annotated[list[str] | None, typer.Argument(metavar="TOPIC-PARTITION...")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="all positions")] = False,
    yes: Yes = False,
) -> None:
    """Remove positions, so that workers start at the committed offsets; stop all workers first."""
    if bool(partitions) == all_of_them:
        raise IllegalSetting("name partitions as TOPIC-PARTITION, or pass --all")
    named = partitions or ()
    what = "all positions" if all_of_them else f"the position of {', '.join(named)}"
    wanted = None if all_of_them else [parse_partition(one) for one in named]
    confirm(f"Reset {what}?", yes=yes)
    done = reset_positions(here.cluster, wanted)
    if here.as_json:
        print_json([asdict(one) for one in done])
    else:
        for one in done:
            print_line(f"{one.topic}-{one.partition}: position removed; a worker starts at the committed offset")
