"""The chart's own suites pass, and Helm 3 renders what Helm 4 does; `make helm-check` builds what that needs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from deploy.generate.values import CHART
from tests.deploy.charts import KUBERNETES, SCENARIOS, objects_of, render
from tests.deploy.tools import ToolMissing, built

HELM_3: Final = "helm.sh/helm/v3/cmd/helm"
UNITTEST: Final = "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"

pytestmark = pytest.mark.timeout(1200)  # the first time Go builds them


def tool(package: str) -> Path:
    try:
        return built(package)
    except ToolMissing as missing:
        pytest.skip(str(missing))


def run(*command: str | Path) -> str:
    made = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def test_the_suites_of_the_chart_pass() -> None:
    told = run(tool(UNITTEST), CHART)
    suites = len(list((CHART / "tests").glob("*_test.yaml")))
    assert suites > 4
    assert f"Test Suites: {suites} passed, {suites} total" in told


def test_a_suite_fails_if_the_chart_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "broken_test.yaml"
    broken.write_text(
        (CHART / "tests" / "scheduler_test.yaml")
        .read_text()
        .replace("path: spec.replicas, value: 2", "path: a, value: b")
    )
    made = subprocess.run(
        [str(tool(UNITTEST)), "--file", str(broken), str(CHART)], capture_output=True, text=True, check=False
    )
    assert made.returncode != 0
    assert "runs two workers whose ids stay the same over restarts" in made.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_helm_3_renders_the_same(scenario: str) -> None:
    values = CHART / "ci" / f"{scenario}-values.yaml"
    version = KUBERNETES[-1]
    told = run(
        tool(HELM_3), "template", "rel", CHART, "--namespace", "ns", "--kube-version", version, "--values", values
    )
    assert objects_of(told) == render(scenario)
