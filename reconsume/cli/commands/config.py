"""`reconsume config`: check and show settings without starting anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import (
    BootstrapServers,
    ConfigFile,
    KafkaSettings,
    Output,
    check_output,
    read_settings,
    settings_of,
    with_options,
)
from reconsume.cli.output import print_facts, print_json, print_line
from reconsume.delay_levels.errors import IllegalSetting

app = typer.Typer()
_Process = Annotated[
    str, typer.Option("--process", help="the process whose settings to check: scheduler, sidecar or console")
]


def _read(
    process: _Process = "scheduler",
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> tuple[str, Settings]:
    return process, read_settings(config, bootstrap_servers, kafka, settings_of(process))


@with_options(app, "check", read=_read)
def check(read: tuple[str, Settings], output: Output = "table") -> None:
    """Check file, environment and command line; exit code 2 if something is wrong. Contacts no broker."""
    if check_output(output):
        print_json({"process": read[0], "ok": True})
    else:
        print_line("ok")


@with_options(app, "show", read=_read)
def show(read: tuple[str, Settings], output: Output = "json") -> None:
    """Print the settings in force, as JSON by default; librdkafka's settings and tokens are masked."""
    shown = read[1].model_dump(mode="json")
    if check_output(output):
        print_json(shown)
    else:
        print_facts(dict(_leaves(shown)))


@app.command("schema")
def schema(process: _Process = "scheduler", output: Output = "json") -> None:
    """Print the JSON schema of a settings file, for editors and CI."""
    if not check_output(output):
        raise IllegalSetting("a schema is JSON: leave -o table out; docs/settings.md has the settings as tables")
    print_json(settings_of(process).model_json_schema())


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in value.items():
        if isinstance(one, dict) and one:
            yield from _leaves(one, f"{prefix}{name}.")
        else:
            yield prefix + name, one
