"""docs/kubernetes.md runs from its top to its bottom on a cluster that has nothing."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.kubernetes.api_server import ApiServer, running
from tests.deploy.tools import ROOT, ToolMissing, helm, kube_apiserver, kubectl

BLOCK: Final = re.compile(r"(?ms)^ *```(bash|yaml)\n(.*?)^ *```$")
ELSEWHERE: Final = ("docker ", "helm test ", "kubectl -n reconsume exec ")
"""Nothing here builds images, and no pod runs on an API server alone."""

pytestmark = pytest.mark.timeout(1800)  # the first time Go builds it


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    try:
        program = kube_apiserver()
    except ToolMissing as missing:
        pytest.skip(str(missing))
    with running(program, tmp_path_factory.mktemp("server")) as one:
        yield one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a user stands, with helm and kubectl that lead to the server."""
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "password.txt").write_text("secret\n")
    (tmp_path / "ca.crt").write_text("certificate\n")
    (tmp_path / "bin").mkdir()
    # Helm waits for the topics Job, which nothing runs here.
    wrappers = {"helm": f'exec {helm()} "$@" --no-hooks --wait=hookOnly\n', "kubectl": f'exec {kubectl()} "$@"\n'}
    for name, script in wrappers.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(below[key], above[key]) for key in below.keys() & above if isinstance(below[key], dict)}
    return below | above | both


def test_it_runs_from_top_to_bottom(server: ApiServer, folder: Path) -> None:
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "KUBECONFIG": str(server.kubeconfig),
        "HOME": str(folder),
    }
    values: dict[str, Any] = {}
    ran = []
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    for kind, block in BLOCK.findall(text):
        said = textwrap.dedent(block)
        if kind == "yaml":
            found = yaml.safe_load(said)
            if found.keys() & {"kafka", "console"}:
                values = merged(values, found)
                (folder / "values.yaml").write_text(yaml.dump(values))
            continue
        for command in said.replace("\\\n", " ").splitlines():
            if command.startswith(ELSEWHERE):
                continue
            shell = ["sh", "-c", command]
            done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            ran.append(command)
    assert len(ran) >= 6
    assert {"kafka", "console"} <= values.keys()
    password = server.ask("/api/v1/namespaces/reconsume/secrets/reconsume-login").told["data"]["password"]
    assert base64.b64decode(password) == b"secret\n"
    assert server.ask("/apis/apps/v1/namespaces/reconsume/statefulsets/reconsume-scheduler").code == 200
    assert server.ask("/apis/apps/v1/namespaces/reconsume/deployments/reconsume-console").code == 200
