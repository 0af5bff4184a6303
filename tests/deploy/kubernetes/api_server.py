"""A Kubernetes API server with its etcd on this machine: what it admits is what a cluster would."""

from __future__ import annotations

import http.client
import json
import secrets
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from reconsume.cli.broker.ports import free_port
from tests.support.waiting import wait_until

__all__ = ["Answer", "ApiServer", "running"]

_ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the server: its status code, what it told, and what it warned of."""

    code: int
    told: dict[str, Any]
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Its port, and a file that leads helm to it."""

    port: int
    token: str
    certificate: Path
    kubeconfig: Path

    def ask(self, path: str, body: dict[str, Any] | None = None, *, verb: str = "GET", kind: str = "json") -> Answer:
        """One request; `kind` is that of the body, such as apply-patch+yaml."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS, context=context)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": f"application/{kind}"}
        try:
            connection.request(verb, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Answer(answer.status, _read(answer.read()), answer.headers.get_all("Warning") or [])
        finally:
            connection.close()

    def apply(self, what: dict[str, Any], *, dry: bool = True) -> Answer:
        """As `kubectl apply --server-side` does, with unknown fields refused."""
        options = f"fieldManager=test&force=true&fieldValidation=Strict{'&dryRun=All' if dry else ''}"
        path = f"{self.path(what)}/{what['metadata']['name']}?{options}"
        return self.ask(path, what, verb="PATCH", kind="apply-patch+yaml")

    def create(self, what: dict[str, Any], *, dry: bool = True) -> Answer:
        """As `kubectl create` does: admission policies for new objects take part."""
        options = f"fieldValidation=Strict{'&dryRun=All' if dry else ''}"
        return self.ask(f"{self.path(what)}?{options}", what, verb="POST")

    def path(self, what: dict[str, Any]) -> str:
        """Where objects of that kind are, of a namespace if they belong to one."""
        version = what["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        found = self.ask(root).told.get("resources", [])
        one = next((one for one in found if one["kind"] == what["kind"] and "/" not in one["name"]), None)
        assert one is not None, f"the server has no {what['kind']} of {version}: {found}"
        namespace = what["metadata"].get("namespace", "ns")
        return f"{root}/namespaces/{namespace}/{one['name']}" if one["namespaced"] else f"{root}/{one['name']}"


def _read(body: bytes) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(body) if body.startswith(b"{") else {"message": body.decode()}
    return told


@contextmanager
def running(program: Path, folder: Path) -> Iterator[ApiServer]:
    """Start one with everything in that folder; it ends with the block.

    Raises:
        AssertionError: it ended, or was not ready within 90 s; the message has its last lines.
    """
    token, port = secrets.token_hex(16), free_port()
    (folder / "token").write_text(token)
    log = folder / "log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [program, folder, str(port)], stdin=subprocess.PIPE, stdout=lines, stderr=subprocess.STDOUT
        )
    try:
        certificate = folder / "apiserver.crt"
        server = ApiServer(port, token, certificate, folder / "kubeconfig")

        def is_ready() -> bool:
            assert process.poll() is None, f"the API server ended:\n{log.read_text()[-3000:]}"
            try:
                return certificate.exists() and server.ask("/readyz").told.get("message") == "ok"
            except OSError:
                return False

        try:
            wait_until(is_ready, "the API server is ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()[-3000:]}") from None
        server.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server)))
        yield server
    finally:
        process.communicate(timeout=_ANSWER_SECONDS)


def _kubeconfig(server: ApiServer) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.certificate)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": server.token}}],
    }
