"""The image and the Compose file: what they copy and mount is there, and versions are those that are tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from reconsume.cli.broker.jars import KAFKA_VERSION
from tests.deploy.tools import ROOT

DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text()
COMPOSE: Final = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", re.MULTILINE)


def pins(file: Path) -> dict[str, str]:
    return dict(PIN.findall(file.read_text()))


def ours() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in COMPOSE["services"].items() if "build" in one}


@pytest.mark.parametrize("name", ["image", "image-spark", "build"])
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    found, tested = pins(DEPLOY / "requirements" / f"{name}.txt"), pins(ROOT / "requirements" / "dev.txt")
    assert len(found) > 10
    assert {one: (found[one], tested[one]) for one in found.keys() & tested.keys() if found[one] != tested[one]} == {}


@pytest.mark.parametrize("file", sorted((DEPLOY / "requirements").glob("*.txt")), ids=lambda file: file.name)
def test_every_pin_has_a_hash_and_no_address(file: Path) -> None:
    text = file.read_text()
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", re.sub(r"(?m)^#.*\n", "", text))[1:]
    assert [block.splitlines()[0] for block in blocks if "--hash=sha256:" not in block] == []
    assert "://" not in text


def test_what_the_image_copies_is_there_and_let_in() -> None:
    let_in = [line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    sources = [source for line in copies for source in line.split()]
    assert len(sources) > 5
    assert [one for one in sources if not (ROOT / one).exists()] == []
    assert [one for one in sources if not one.startswith(tuple(let_in))] == []


def test_both_targets_run_as_nobody_and_start_no_shell() -> None:
    stages = {match[1]: match[2] for match in re.finditer(r"(?ms)^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE)}
    for target in ("reconsume", "spark"):
        assert "\nUSER 65532:65532\n" in stages[target]
        assert re.search(r'^ENTRYPOINT \["/opt/reconsume/bin/', stages[target], re.MULTILINE)
    assert DOCKERFILE.rstrip().endswith("FROM reconsume")
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE).count("${PYTHON_IMAGE}") == 3


def test_compose_starts_the_kafka_that_the_broker_command_starts() -> None:
    assert f"apache/kafka:{KAFKA_VERSION}" in COMPOSE["services"]["kafka"]["image"]


def test_what_compose_mounts_is_there() -> None:
    mounts = [volume for one in COMPOSE["services"].values() for volume in one.get("volumes", [])]
    assert len(mounts) > 4
    assert [one for one in mounts if not (DEPLOY / one.split(":")[0]).exists()] == []
    assert all(one.endswith(":ro") for one in mounts)


def test_compose_runs_ours_as_kubernetes_would() -> None:
    assert {"topics", "scheduler-1", "scheduler-2", "sidecar", "console"} == ours().keys()
    for one in ours().values():
        assert (one["read_only"], one["user"], one["cap_drop"]) == (True, "65532:65532", ["ALL"])
    ids = [word for name in ("scheduler-1", "scheduler-2") for word in ours()[name]["command"] if "instance-id" in word]
    assert len(set(ids)) == 2


def test_compose_s_prometheus_asks_every_process_of_ours() -> None:
    config = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    targets = {target for one in job["static_configs"] for target in one["targets"]}
    managements = {
        f"{name}:{word.rpartition(':')[2]}"
        for name, one in ours().items()
        for word in one["command"]
        if word.startswith("--management=")
    }
    assert targets == managements
    assert {one.partition(":")[0] for one in targets} == ours().keys() - {"topics"}
    # Alerts and dashboards choose by these.
    assert job["static_configs"][0]["labels"].keys() == {"namespace", "release"}
