"""Rendering the chart."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.generate.values import CHART
from tests.deploy.tools import ToolMissing, helm

__all__ = ["KUBERNETES", "SCENARIOS", "find", "helm_template", "objects_of", "pod_specs", "render", "run_helm"]

SCENARIOS: Final = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
KUBERNETES: Final = tuple(f"1.{minor}" for minor in range(28, 38))


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a repeated key, as Kustomize and other post-renderers do; PyYAML itself takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = {key for key in keys if keys.count(key) > 1}
        assert not repeated, f"repeated keys {repeated}{node.start_mark}"
        return super().construct_mapping(node, deep)


def objects_of(rendered: str) -> list[dict[str, Any]]:
    """The objects that helm has rendered."""
    return [one for one in yaml.load_all(rendered, _UniqueKeys) if one]


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; the caller looks at the exit code."""
    try:
        tool = helm()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    return subprocess.run([str(tool), *arguments], capture_output=True, text=True, check=False)


def helm_template(
    values: str | None,
    *sets: str,
    kubernetes: str = KUBERNETES[-1],
    kinds: Sequence[str] = (),
    chart: Path = CHART,
    notes: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Render a chart as release `rel` in namespace `ns`; `values` names a scenario, `kinds` what the server has."""
    files = ["--values", str(CHART / "ci" / f"{values}-values.yaml")] if values is not None else []
    given = [word for one in sets for word in ("--set", one)]
    asked = (
        ["--dry-run=client", "--hide-notes=false"]
        if notes
        else ["--kube-version", kubernetes, *(f"--api-versions={kind}" for kind in kinds)]
    )
    verb = ["install", "rel"] if notes else ["template", "rel"]
    return run_helm(*verb, str(chart), "--namespace", "ns", *asked, *files, *given)


@functools.cache
def _rendered(values: str, sets: tuple[str, ...], kubernetes: str, kinds: tuple[str, ...]) -> str:
    run = helm_template(values, *sets, kubernetes=kubernetes, kinds=kinds)
    assert run.returncode == 0, run.stderr
    return run.stdout


def render(
    values: str, *sets: str, kubernetes: str = KUBERNETES[-1], kinds: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """The objects of a scenario."""
    return objects_of(_rendered(values, sets, kubernetes, kinds))


def find(objects: list[dict[str, Any]], kind: str, suffix: str = "") -> dict[str, Any]:
    """The one object of that kind, whose name ends so."""
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1, f"{len(found)} objects are {kind} …{suffix}: {[one['metadata']['name'] for one in found]}"
    return found[0]


def pod_specs(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods that the objects make, by kind and name."""
    found = {}
    for one in objects:
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if one["kind"] in ("Deployment", "StatefulSet", "Job", "CronJob"):
            spec = spec["template"]["spec"]
        elif one["kind"] != "Pod":
            continue
        found[f"{one['kind']}/{one['metadata']['name']}"] = spec
    return found
