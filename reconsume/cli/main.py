"""`reconsume`: the command line. A command imports its modules when it runs, so that `--help` is quick."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from reconsume.bridge.process.ports import (
    CONSOLE_MANAGEMENT,
    CONSOLE_PAGES,
    SCHEDULER_MANAGEMENT,
    SIDECAR_API,
    SIDECAR_MANAGEMENT,
)
from reconsume.cli.commands.operations import add_operations
from reconsume.cli.commands.spark import add_spark
from reconsume.cli.common import (
    Output,
    as_process,
    check_number,
    check_output,
    folder_named,
    host_and_port,
    ignore_known_warnings,
)
from reconsume.cli.output import (
    give_up_messages,
    give_up_output,
    make_stray_lines_visible,
    print_error,
    print_line,
    tell,
)
from reconsume.delay_levels.errors import ReconsumeError

_ERROR: Final = 2
"""The exit code of a command that could not run, the same as for wrong options."""
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(no_args_is_help=True)


class _LaterGroup(TyperGroup):
    """Commands of a module that is imported on first use, so that `reconsume --help` is quick."""

    @property
    def commands(self) -> Any:
        """Return the commands by name."""
        module = import_module(f"reconsume.cli.commands.{self.name}")
        return get_command(module.app).commands  # type: ignore[attr-defined]  # it is a group

    @commands.setter
    def commands(self, none: Any) -> None:
        """Ignore the empty commands that the base class sets."""


for _name, _help in {
    "topics": "The topics of reconsume.",
    "groups": "Subscription groups and the level table.",
    "dlq": "Inspect, export, resend and resolve a group's dead letters.",
    "jobs": "Resends and resolutions that continue after a crash.",
    "delay": "Waiting records: list them, withdraw delayed messages.",
    "quarantine": "Undeliverable records.",
    "positions": "The positions of scheduler workers.",
    "config": "Check and show settings.",
}.items():
    app.add_typer(typer.Typer(cls=_LaterGroup), name=_name, help=_help, no_args_is_help=True)


def _show_versions(asked: bool) -> None:
    if asked:
        from reconsume.cli.version import versions

        print_line(versions())
        raise typer.Exit


@app.callback()
def reconsume(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_versions, help="show the installed version")
    ] = False,
) -> None:
    """Retries, delayed messages and dead letters for consumers of Apache Kafka."""


@app.command()
def demo(
    input_file: Annotated[
        Path | None, typer.Option("--input", help="CSV or JSON lines, plain or .gz; default: 20,000 real flights")
    ] = None,
    key: Annotated[str | None, typer.Option(help="column that becomes the record's key")] = None,
    fail_if: Annotated[str, typer.Option(metavar="COLUMN=VALUE", help="rows that always fail")] = "dep_time=NA",
    output: Output = "table",
) -> None:
    """Show the whole loop on this machine: a real Kafka, two schedulers, a consumer group that fails."""
    from reconsume.cli.demo.run import run_demo

    if not run_demo(input_file, key, fail_if, as_json=check_output(output)):
        raise typer.Exit(1)


@app.command()
def broker(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="port; 0 picks a free one")] = 9092,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", parser=folder_named, help="folder of the data; by default nothing is kept"),
    ] = None,
    output: Output = "table",
) -> None:
    """Run a real Kafka on this machine, in the foreground, for development."""
    from reconsume.cli.broker.command import run_broker

    run_broker(port, data, as_json=check_output(output))


@app.command()
def chaos(
    seed: Annotated[
        int | None, typer.Option(help="seed of the schedule; default: a random one, which is printed")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=10_080, callback=check_number, help="duration of the faults")
    ] = 3,
    brokers: Annotated[int, typer.Option(help="number of brokers: 1, or 3 of which one fails at a time")] = 1,
    rate: Annotated[float, typer.Option(min=1, max=100_000, callback=check_number, help="messages per second")] = 200,
    sidecar: Annotated[bool, typer.Option("--sidecar", help="add a sidecar and its app, which fail too")] = False,
    output: Output = "table",
) -> None:
    """Cause faults on a temporary Kafka while messages flow; exit code 1 if a promise is broken."""
    from reconsume.cli.chaos.run import chaos as run

    if not run(seed, minutes, brokers, rate, sidecar=sidecar, as_json=check_output(output)):
        raise typer.Exit(1)


@as_process(app, "scheduler", SCHEDULER_MANAGEMENT, "/metrics, /livez, /readyz")
def scheduler(
    settings: Callable[..., Any],
    instance_id: Annotated[
        str | None, typer.Option(help="stable identity of this worker; default: one that the machine keeps")
    ] = None,
) -> None:
    """Run a scheduler worker: it moves due records to %RETRY% and exhausted ones to %DLQ%."""
    from reconsume.cli.actions.processes import run_scheduler

    run_scheduler(settings(scheduler={"instance_id": instance_id}))


@as_process(app, "sidecar", SIDECAR_MANAGEMENT, "probes, /metrics, /quiesce, /drain")
def sidecar(
    settings: Callable[..., Any],
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help=f"the API [127.0.0.1:{SIDECAR_API}]")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="serve only this group, and create its retry topic; may be given several times"),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="file with the token of callers; required beyond loopback")
    ] = None,
) -> None:
    """Serve send-backs and delayed messages over HTTP to a consumer in any language, and push messages to apps."""
    from reconsume.cli.actions.processes import run_sidecar

    where = host_and_port(listen, "--listen", SIDECAR_API)
    run_sidecar(settings(sidecar={"listen": where, "groups": group or None, "token_file": token_file}))


@as_process(app, "console", CONSOLE_MANAGEMENT, "/metrics, /livez, /readyz")
def console(
    settings: Callable[..., Any],
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help=f"the pages [127.0.0.1:{CONSOLE_PAGES}]")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="file with the token of browsers; beyond loopback a sign-in is needed"),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="disable all changes")] = False,
    hide_values: Annotated[
        bool, typer.Option("--hide-values", help="show only the sizes of keys, values and users' headers")
    ] = False,
    index_folder: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            parser=folder_named,
            help="folder of the index of dead letters; default: the user's cache",
        ),
    ] = None,
) -> None:
    """Serve pages for a browser: waiting messages, dead letters and their causes, resends."""
    from reconsume.cli.actions.processes import run_console

    own = {
        "listen": host_and_port(listen, "--listen", CONSOLE_PAGES),
        "token_file": token_file,
        "read_only": read_only or None,
        "hide_values": hide_values or None,
        "index_folder": index_folder,
    }
    run_console(settings(console=own))


add_operations(app)
add_spark(app)


def main() -> None:
    """Run the command line. Exit code 1 is a result, such as findings; 2 is an error.

    An error of reconsume is one message; any other one has a traceback.
    """
    make_stray_lines_visible()
    ignore_known_warnings()
    try:
        get_command(app)()  # app() would replace sys.excepthook by typer's
    except ReconsumeError as error:
        print_error(error)
        sys.exit(_ERROR)
    except SystemExit as ended:
        # For typer an unread output, and a question without an answer, have the exit code of findings.
        if isinstance(ended.__context__, (BrokenPipeError, typer.Abort)):
            ended.code = _ERROR
        raise
    except Exception as error:  # noqa: BLE001 - Python's own exit code would be 1, which reads as findings
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            give_up_output()
            tell(f"error: the output is not complete: {error.strerror}; free some space, or write elsewhere")
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(_ERROR)
    finally:
        give_up_messages()
