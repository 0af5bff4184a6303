"""`reconsume config`: settings looked at without starting anything."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from reconsume.cli.common import BootstrapServers, ConfigFile, KafkaSettings, line_settings, print_json
from reconsume.delay_levels.errors import IllegalSetting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reconsume.bridge.settings import Settings

__all__ = ["config_app"]

config_app = typer.Typer(help="Settings, without starting anything.", no_args_is_help=True)
_Process = Annotated[str, typer.Option("--process", help="whose settings: scheduler, sidecar or console")]


@config_app.command("check")
def check(
    process: _Process = "scheduler",
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> None:
    """Say what is wrong with file, environment and command line; exit code 1 if something is. Asks no broker."""
    _settings(process, config, bootstrap_servers, kafka)
    sys.stdout.write("ok\n")


@config_app.command("show")
def show(
    process: _Process = "scheduler",
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    kafka: KafkaSettings = None,
) -> None:
    """Print the settings in force as JSON; librdkafka's and the token are masked, for passwords are among them."""
    print_json(_settings(process, config, bootstrap_servers, kafka).model_dump(mode="json"))


@config_app.command("schema")
def schema(process: _Process = "scheduler") -> None:
    """Print the JSON schema of a settings file, for editors and CI."""
    print_json(_kind(process).model_json_schema())


def _settings(
    process: str, config: Path | None, bootstrap_servers: str | None, kafka: Sequence[str] | None
) -> Settings:
    from reconsume.bridge.settings import load_settings

    return load_settings(config, None, line_settings(bootstrap_servers, kafka), _kind(process))


def _kind(process: str) -> type[Settings]:
    if process == "scheduler":
        from reconsume.bridge.settings import Settings

        return Settings
    if process == "sidecar":
        from reconsume.consumers.sidecar.settings import ProcessSettings

        return ProcessSettings
    if process == "console":
        from reconsume.bridge.console.settings import ConsoleProcessSettings

        return ConsoleProcessSettings
    raise IllegalSetting(f"--process {process!r}: use scheduler, sidecar or console")
