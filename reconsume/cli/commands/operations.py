"""Commands for operators: send-back, status, doctor. Each imports its modules when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from reconsume.cli.common import Here, on_kafka


def add_operations(app: typer.Typer) -> None:
    """Register the commands."""
    on_kafka(app, "send-back")(send_back)
    on_kafka(app, "status")(status)
    on_kafka(app, "doctor")(doctor)


def send_back(
    here: Here,
    group: Annotated[str, typer.Option(help="consumer group")],
    message: Annotated[str, typer.Option(metavar="TOPIC/PARTITION/OFFSET", help="the record to send back")],
    delay_level: Annotated[
        int, typer.Option(help="delay level; 0: the group's next one; negative: dead letter now")
    ] = 0,
    cause: Annotated[str | None, typer.Option(help="cause, kept on a dead letter")] = None,
) -> None:
    """Send one record back by hand, as a consumer of the group would."""
    from reconsume.cli.actions.send_back import send_back_record

    send_back_record(here.cluster, group, message, delay_level, cause, as_json=here.as_json)


def status(
    here: Here,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="repeat every 2 s until Ctrl-C")] = False,
) -> None:
    """Show waiting and overdue records by level, and the retries and dead letters of each group."""
    from reconsume.cli.actions.status import show_status, watch_status

    (watch_status if watch else show_status)(here.cluster, as_json=here.as_json)


def doctor(
    here: Here,
    role: Annotated[str, typer.Option(help="the role whose rights to check, as in `topics acls`")] = "scheduler",
    group: Annotated[str | None, typer.Option(help="the consumer group of a consumer or sidecar")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="an origin topic; may be given several times")] = None,
    send_record: Annotated[
        bool, typer.Option(help="send a record through the shortest level to %RETRY%reconsume-doctor")
    ] = True,
) -> None:
    """Examine the installation and print a remedy for each problem; exit code 1 if there is one."""
    from reconsume.cli.actions.doctor import run_doctor

    cluster, as_json = here
    if not run_doctor(cluster, role, group=group, topics=topic or (), send_record=send_record, as_json=as_json):
        raise typer.Exit(1)
