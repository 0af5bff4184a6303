"""Common parts of commands: options, settings, questions."""

from __future__ import annotations

import atexit
import gc
import getpass
import importlib.util
import inspect
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import typer

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_utf8
from reconsume.delay_levels.human_text import pair, visible

if TYPE_CHECKING:
    from reconsume.bridge.kafka.cluster import Cluster
    from reconsume.bridge.process.settings import Settings

BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", "-b", help="host:port of Kafka [RECONSUME_BOOTSTRAP_SERVERS]")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", envvar="RECONSUME_CONFIG", help="settings file, TOML or YAML")
]
KafkaSettings = Annotated[
    list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="a librdkafka setting; may be given several times")
]
Output = Annotated[str, typer.Option("--output", "-o", help="output format: table or json")]
SparkMaster = Annotated[str, typer.Option("--master", help="where Spark runs: here, or the master of a cluster")]
SparkRemote = Annotated[str | None, typer.Option("--remote", metavar="sc://HOST:PORT", help="a Spark Connect server")]
SparkOptions = Annotated[
    list[str] | None,
    typer.Option("--spark-option", metavar="KEY=VALUE", help="a setting of Spark (spark.…) or of its Kafka source"),
]
Command = TypeVar("Command", bound=Callable[..., None])
ExportFile = Annotated[
    Path | None, typer.Option("--file", help="output file, which must not exist; default: standard output")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


class Here(NamedTuple):
    """The options that all commands on Kafka share: the installation, and whether to print JSON."""

    cluster: Cluster
    as_json: bool

    @property
    def settings(self) -> Settings:
        """The settings of the installation."""
        return self.cluster.settings


def with_options(app: typer.Typer, name: str, **made: Callable[..., Any]) -> Callable[[Command], Command]:
    """Register a command that shares options with others.

    Args:
        app: the application to extend.
        name: the name of the command.
        made: for each parameter that several options make: a function with these options as its parameters. They
            follow the command's own options.
    """
    shared = {one: inspect.signature(make, eval_str=True).parameters for one, make in made.items()}

    def register(command: Command) -> Command:
        @wraps(command)
        def run(**given: Any) -> None:
            _check_texts(given)
            values = {one: make(**{option: given.pop(option) for option in shared[one]}) for one, make in made.items()}
            command(**values, **given)

        own = [one for one in inspect.signature(command, eval_str=True).parameters.values() if one.name not in made]
        options = [option for parameters in shared.values() for option in parameters.values()]
        parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own, *options)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads the options there
        app.command(name)(run)
        return command

    return register


def _check_texts(given: Mapping[str, Any]) -> None:
    """Refuse arguments that are not UTF-8; Python passes their bytes as surrogates."""
    for name, value in given.items():
        check_utf8(name, *(value if isinstance(value, list) else [value]))


def on_kafka(
    app: typer.Typer, name: str, *, output: str = "table", **made: Callable[..., Any]
) -> Callable[[Command], Command]:
    """Register a command with the options of all commands on Kafka, as its parameter `here`.

    Args:
        app: the application to extend.
        name: the name of the command.
        output: the default of `--output`.
        made: as for `with_options`.
    """

    def here(
        config: ConfigFile = None,
        bootstrap_servers: BootstrapServers = None,
        kafka: KafkaSettings = None,
        output: Output = output,
    ) -> Here:
        from reconsume.bridge.kafka.cluster import Cluster

        as_json = check_output(output)
        return Here(Cluster(read_settings(config, bootstrap_servers, kafka)), as_json)

    return with_options(app, name, **made, here=here)


def as_process(app: typer.Typer, name: str, port: int, paths: str) -> Callable[[Command], Command]:
    """Register a process; its parameter `settings` is called with its own options, by section of the settings.

    Args:
        app: the application to extend.
        name: the name of the process.
        port: the default management port.
        paths: the paths on that port.
    """

    def settings(
        management: str | None = None,
        log_level: Annotated[
            str | None, typer.Option(help="log level: DEBUG, INFO (default), WARNING or ERROR")
        ] = None,
        log_format: Annotated[str | None, typer.Option(help="log format: console (default) or json")] = None,
        config: ConfigFile = None,
        bootstrap_servers: BootstrapServers = None,
        kafka: KafkaSettings = None,
    ) -> Callable[..., Any]:
        of_all = {
            "management": host_and_port(management, "--management", port),
            "logging": {"level": log_level and log_level.upper(), "format": log_format},
        }
        return partial(read_settings, config, bootstrap_servers, kafka, settings_of(name), **of_all)

    option = typer.Option(metavar="HOST:PORT", help=f"{paths} [127.0.0.1:{port}]")
    settings.__annotations__["management"] = Annotated[str | None, option]
    return with_options(app, name, settings=settings)


def settings_of(process: str) -> type[Settings]:
    """Return the class of a process's settings.

    Raises:
        IllegalSetting: the process does not exist.
    """
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


def read_settings(
    config: Path | None,
    bootstrap_servers: str | None,
    kafka: Sequence[str] | None,
    kind: type[Settings] | None = None,
    **overrides: Any,
) -> Any:
    """Read the settings of a process; the command line overrides. None means a scheduler."""
    from reconsume.bridge.process.settings import Settings, load_settings

    pairs = dict(pair("-X", text, "KEY=VALUE, such as -X security.protocol=SASL_SSL") for text in kafka or ())
    line = {"bootstrap_servers": bootstrap_servers, "kafka": pairs} | overrides
    return load_settings(kind or Settings, config, None, line)


def host_and_port(text: str | None, option: str, default: int) -> dict[str, object] | None:
    """Return the settings of `HOST:PORT`, or None; an IPv6 address needs brackets.

    Args:
        text: the text of the command line.
        option: the option, such as `--listen`.
        default: the port of the example in the error.

    Raises:
        IllegalSetting: the text has another form.
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    if not host or not port.isdecimal() or in_brackets != (":" in host):
        raise IllegalSetting(
            f"{option} {text!r}: write HOST:PORT, such as {option} 127.0.0.1:{default} or {option} [::1]:{default}"
        )
    return {"host": host.strip("[]"), "port": int(port)}


_SHOWN_BYTES = 2_000
_COLLECT_EVERY = 200_000
"""Garbage-collection threshold; a batch of messages in progress has 60,000 objects, none of them garbage."""


_SIGNAL_SECONDS = 1.0
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class _SignalEvent(threading.Event):
    """An event that is set by a signal handler.

    The kernel may deliver a signal to any thread, but handlers run in the main thread once it wakes up. So no wait
    lasts longer than a second.
    """

    def wait(self, timeout: float | None = None) -> bool:
        """Wait like `threading.Event`, but wake up once a second so that handlers can run."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _SIGNAL_SECONDS if end is None else end - time.monotonic()
            if super().wait(max(0.0, min(left, _SIGNAL_SECONDS))):
                return True
            if left <= 0:
                return False


def stop_at_signals() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set from now on.

    Once Python exits, they are ignored: it would restore their default handlers, and a second signal would then end
    the process with the signal's status although all work is done.
    """
    stop = _SignalEvent()
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: stop.set())
        atexit.register(signal.signal, number, signal.SIG_IGN)
    return stop


def exit_at_sigterm() -> None:
    """Let SIGTERM end this process like Ctrl-C, so that no child process remains."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def ignore_known_warnings() -> None:
    """Ignore warnings of confluent-kafka (2.16) about each fenced or abandoned producer that was replaced."""
    warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)


def keep_what_is_loaded() -> None:
    """Exclude loaded modules and settings from garbage collection, in long-running processes.

    Otherwise every few thousand messages it visits them, for longer than the delivery of one takes.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)


def folder_named(text: str) -> Path:
    """Return a folder of the command line; refuse an empty name, which would mean the current folder."""
    if not text.strip():
        raise typer.BadParameter("the name is empty; check the variable that it comes from")
    return Path(text)


def check_number(value: float) -> float:
    """Refuse `nan`, which is within every range for typer."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


def check_output(output: str) -> bool:
    """Whether to print JSON."""
    if output not in ("table", "json"):
        raise IllegalSetting(f"-o {output!r}: use table or json")
    return output == "json"


def shown_text(value: bytes | None) -> str | None:
    """Return bytes as text, with escapes for invalid UTF-8; long values are shortened."""
    return None if value is None else value[:_SHOWN_BYTES].decode(errors="backslashreplace")


def confirm(question: str, *, yes: bool) -> None:
    """Ask at a terminal.

    Raises:
        IllegalSetting: the answer is no; or there is neither a terminal nor `--yes`.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise IllegalSetting(f"{question} Standard input is not a terminal; pass --yes to continue")
    if not typer.confirm(visible(question), err=True):
        raise IllegalSetting("nothing was changed")


def user_name() -> str:
    """Return the system's name of the current user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no entry for the uid, as in a container
        return f"uid {os.getuid()}"


_MODULES: Final = {
    "console": ("fastapi", "httptools", "jinja2", "joserfc", "starlette", "uvicorn"),
    "sidecar": ("fastapi", "httptools", "uvicorn", "uvloop"),
    "spark": ("pyspark",),
}


def missing_of(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed, without the time that importing them takes."""
    return [module for module in _MODULES[extra] if importlib.util.find_spec(module) is None]


def need(extra: str, what: str = "this command") -> None:
    """Raise `IllegalSetting`, which tells what to install, if a module of the extra is missing."""
    if missing := missing_of(extra):
        raise IllegalSetting(f"{what} needs {', '.join(missing)}: pip install '.[cli,{extra}]' in the checkout")
