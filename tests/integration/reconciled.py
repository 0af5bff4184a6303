"""What the command `reconcile` says of an installation when all was well."""

from __future__ import annotations

import json

from tests.integration.cli.test_cli import reconsume
from tests.integration.installation import Installation
from tests.spark.few_records import FEW_RECORDS

__all__ = ["assert_reconcile_finds_nothing"]


def assert_reconcile_finds_nothing(here: Installation) -> None:
    """The real command, on a Spark of its own."""
    run = reconsume(
        *("reconcile", "-o", "json", "--master", "local[2]"),
        *(word for name, value in FEW_RECORDS.items() for word in ("--spark-option", f"{name}={value}")),
        RECONSUME_BOOTSTRAP_SERVERS=here.settings.bootstrap_servers,
        RECONSUME_TOPIC_PREFIX=here.settings.topic_prefix,
    )
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr[-4_000:]
    assert json.loads(run.stdout)["findings"] == {}, run.stdout
