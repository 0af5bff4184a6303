"""schemathesis against the API: it makes requests of the OpenAPI document, right and wrong ones, and finds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.installation import installation
from tests.integration.sidecars import running_sidecar, sidecar_settings

pytestmark = [pytest.mark.kafka, pytest.mark.more]

# A document cannot say that a moment may be at most 40 days ahead.
_SETTINGS = """
[[operations]]
include-name = "POST /v1/messages"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422", "429", "503"]
"""


def test_requests_made_of_the_document_find_nothing(bootstrap_servers: str, tmp_path: Path) -> None:
    settings_file = tmp_path / "schemathesis.toml"
    settings_file.write_text(_SETTINGS)
    with (
        installation(bootstrap_servers) as here,
        running_sidecar(sidecar_settings(here.settings, answer_seconds=5)) as sidecar,
    ):
        here.produce(here.topic("fuzzed"), b"1")
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(settings_file), "run"),
            *(f"http://{sidecar.api}/openapi.json", "--checks", "all", "--max-examples", "25", "--no-color"),
        ]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert sidecar.probe("/livez").status == 200
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
    assert not {"FAILURES", "ERRORS"} & set(run.stdout.replace("=", " ").split()), run.stdout[-8_000:]
