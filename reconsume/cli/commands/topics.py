"""`reconsume topics`: what is missing, making it, and the rights that a role needs."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import Here, Yes, confirm, on_kafka
from reconsume.cli.output import counted

__all__ = ["topics_app"]

topics_app = typer.Typer(help="The topics of reconsume.", no_args_is_help=True)


@topics_app.command("plan")
@on_kafka
def topics_plan(
    here: Here,
) -> None:
    """Show which topics are missing, which are not as they should be, and which settings `apply` publishes."""
    from reconsume.cli.actions.topics import make_plan, show_plan

    show_plan(make_plan(here.settings), as_json=here.as_json)


@topics_app.command("apply")
@on_kafka
def topics_apply(
    here: Here,
    yes: Yes = False,
) -> None:
    """Make the missing topics and publish the settings of topics. What exists stays; what mends it is shown."""
    from reconsume.cli.actions.topics import apply_plan, make_plan, show_plan

    settings, as_json = here
    plan = make_plan(settings)
    if not as_json or plan.is_empty:
        show_plan(plan, as_json=as_json)
    settings_too = " and publish the topic settings" if plan.publishes else ""
    if not plan.is_empty and confirm(f"Make {counted(len(plan.topics.missing), 'topic')}{settings_too}?", yes=yes):
        apply_plan(settings, plan, as_json=as_json)


@topics_app.command("acls")
@on_kafka
def topics_acls(
    here: Here,
    role: Annotated[
        str,
        typer.Option(help="scheduler, consumer, sidecar, sender, producer, console, spark, replay or admin"),
    ] = "scheduler",
    group: Annotated[str | None, typer.Option(help="the consumer group of a consumer or sidecar")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="an origin topic; may be given several times")] = None,
    exactly_once: Annotated[bool, typer.Option("--exactly-once", help="it sends back in transactions")] = False,
    principal: Annotated[str | None, typer.Option(help="default: User:<role>")] = None,
) -> None:
    """Print the rights that a role needs, no more and no less, as kafka-acls.sh commands. Asks no broker."""
    from reconsume.cli.actions.acls import show_acls

    show_acls(
        here.settings,
        role,
        group=group,
        topics=topic or (),
        exactly_once=exactly_once,
        principal=principal,
        as_json=here.as_json,
    )
