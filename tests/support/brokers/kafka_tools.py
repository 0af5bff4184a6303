"""Kafka's own command-line tools: Java clients, without a compiler. Their jar is not among those of a broker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from reconsume.cli.broker import jars
from reconsume.cli.broker.java import find_java

__all__ = ["console_produce", "limit_producer", "run_kafka_tool"]

_TOOLS = """<ivy-module version="2.0">
  <info organisation="reconsume" module="kafka-tools"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" transitive="false" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def console_produce(bootstrap_servers: str, topic: str, lines: str, reader: Mapping[str, str]) -> None:
    """Run the console producer on `lines`; it ends when all of them are acknowledged.

    Args:
        bootstrap_servers: of Kafka.
        topic: to produce to.
        lines: what a person would type, read as UTF-8.
        reader: its `--reader-property` options.

    Raises:
        JarsNotFound: Kafka's jars, or the one of its tools, could not be fetched.
        AssertionError: it ended with an error or printed one.
    """
    options = [part for name, value in reader.items() for part in ("--reader-property", f"{name}={value}")]
    where = ("--bootstrap-server", bootstrap_servers, "--topic", topic, "--request-timeout-ms", "30000")
    run_kafka_tool("ConsoleProducer", *where, *options, lines=lines)


def limit_producer(bootstrap_servers: str, client_id: str, bytes_per_second: int) -> None:
    """Set a producer quota; confluent-kafka has no call for it."""
    run_kafka_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", bootstrap_servers, "--entity-type", "clients", "--entity-name", client_id),
        *("--alter", "--add-config", f"producer_byte_rate={bytes_per_second}"),
    )


def run_kafka_tool(main_class: str, *options: str, lines: str = "") -> str:
    """Run one of Kafka's commands and give what it printed.

    Args:
        main_class: such as `TransactionsCommand` of `org.apache.kafka.tools`, which is `kafka-transactions.sh`, or a
            full name.
        options: as on its command line.
        lines: its standard input.

    Raises:
        JarsNotFound: Kafka's jars, or the one of its tools, could not be fetched.
        AssertionError: it ended with an error or printed one.
    """
    java = find_java()
    folder = jars.kafka_jars(java, lambda _line: None, jars.NEWEST_KAFKA_VERSION)
    run = subprocess.run(
        [
            *(str(java), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            *("-cp", f"{_tools_jar(java)}{os.pathsep}{folder}/*"),
            main_class if "." in main_class else f"org.apache.kafka.tools.{main_class}",
            *options,
        ],
        input=lines.encode(),
        capture_output=True,
        timeout=180,
        check=False,
    )
    # A record that cannot be sent is logged as an error, and the exit code is 0 all the same.
    assert run.returncode == 0, run.stderr.decode()
    assert b"ERROR" not in run.stderr + run.stdout, run.stderr.decode()
    return run.stdout.decode()


def _tools_jar(java: Path) -> Path:
    """Fetched once, as the broker's jars are."""
    version = jars.NEWEST_KAFKA_VERSION
    wanted = jars.JarSet(f"kafka-tools-{version}", f"Kafka's tools {version}", _TOOLS.format(version=version), 1, 1)
    return jars.cached_jars(java, lambda _line: None, wanted) / f"kafka-tools-{version}.jar"
