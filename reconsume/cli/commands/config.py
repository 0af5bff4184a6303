"""`reconsume config`: settings looked at without starting anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconsume.cli.common import BootstrapServers, ConfigFile, KafkaSettings, Output, check_output, read_settings
from reconsume.cli.output import print_facts, print_json, print_line
from reconsume.delay_levels.errors import IllegalSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconsume.bridge.process.settings import Settings

__all__ = ["app"]

app = typer.Typer()
_Process = Annotated[str, typer.Option("--process", help="whose settings: scheduler, sidecar or console")]


@app.command("check")
def check(
    process: _Process = "scheduler",
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "table",
) -> None:
    """Say what is wrong with file, environment and command line; exit code 2 if something is. Asks no broker."""
    as_json = check_output(output)
    read_settings(config, bootstrap_servers, kafka, _kind(process))
    if as_json:
        print_json({"process": process, "ok": True})
    else:
        print_line("ok")


@app.command("show")
def show(
    process: _Process = "scheduler",
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
    output: Output = "json",
) -> None:
    """Print the settings in force, as JSON by default; librdkafka's and the token are masked: they hold passwords."""
    as_json = check_output(output)
    settings = read_settings(config, bootstrap_servers, kafka, _kind(process)).model_dump(mode="json")
    if as_json:
        print_json(settings)
    else:
        print_facts(dict(_leaves(settings)))


@app.command("schema")
def schema(process: _Process = "scheduler", output: Output = "json") -> None:
    """Print the JSON schema of a settings file, for editors and CI."""
    if not check_output(output):
        raise IllegalSetting("a schema is JSON: leave -o table out; docs/settings.md has the settings as tables")
    print_json(_kind(process).model_json_schema())


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in value.items():
        if isinstance(one, dict) and one:
            yield from _leaves(one, f"{prefix}{name}.")
        else:
            yield prefix + name, one


def _kind(process: str) -> type[Settings]:
    if process == "scheduler":
        from reconsume.bridge.process.settings import Settings

        return Settings
    if process == "sidecar":
        from reconsume.sidecar.settings import ProcessSettings

        return ProcessSettings
    if process == "console":
        from reconsume.console.settings import ConsoleProcessSettings

        return ConsoleProcessSettings
    raise IllegalSetting(f"--process {process!r}: use scheduler, sidecar or console")
