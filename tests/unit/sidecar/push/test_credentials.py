"""Certificates of an app and of the sidecar that are replaced while it runs, as cert-manager does each day."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconsume.sidecar.push.answers import AppAnswer
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest
from reconsume.sidecar.push.settings import PushSettings

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")

REQUEST = AppRequest("/x", [], b"")


def make(folder: Path, name: str) -> None:
    """Make a certificate for `localhost` that signs itself, and its key."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
    writer.close()


def test_a_certificate_that_is_replaced_is_shown_to_the_app(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("app", "old", "new"):
        make(tmp_path, name)
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.load_cert_chain(tmp_path / "app.pem", tmp_path / "app.key")
    trusted.verify_mode = ssl.CERT_REQUIRED
    trusted.load_verify_locations(tmp_path / "new.pem")
    certificate, key = tmp_path / "ours.pem", tmp_path / "ours.key"

    def replace(name: str, *suffixes: str) -> None:
        for suffix in suffixes:
            shutil.copy(tmp_path / f"{name}.{suffix}", tmp_path / f"ours.{suffix}.tmp")
            (tmp_path / f"ours.{suffix}.tmp").replace(tmp_path / f"ours.{suffix}")

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=trusted)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        files: dict[str, Any] = {"ca_file": tmp_path / "app.pem", "cert_file": certificate, "key_file": key}
        client = AppClient(PushSettings(group="g", topics={"t": "*"}, url=url, **files))
        assert not isinstance(await client.send("POST", REQUEST, 5), AppAnswer), "the app does not know the old one"
        replace("new", "pem")
        for _ in range(2):
            assert not isinstance(await client.send("POST", REQUEST, 5), AppAnswer), "its key is still the old one"
        [told] = caplog.messages
        assert "cert_file" in told
        replace("new", "key")
        assert isinstance(await client.send("POST", REQUEST, 5), AppAnswer)
        await client.aclose()
        server.close()

    replace("old", "pem", "key")
    asyncio.run(run())


def test_an_authority_that_is_replaced_is_trusted(tmp_path: Path) -> None:
    for name in ("old", "new"):
        make(tmp_path, name)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(tmp_path / "new.pem", tmp_path / "new.key")
    authority = tmp_path / "ca.pem"
    shutil.copy(tmp_path / "old.pem", authority)

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=shown)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        client = AppClient(PushSettings(group="g", topics={"t": "*"}, url=url, ca_file=authority))
        assert not isinstance(await client.send("POST", REQUEST, 5), AppAnswer)
        authority.unlink()
        assert not isinstance(await client.send("POST", REQUEST, 5), AppAnswer), "the old one stays"
        shutil.copy(tmp_path / "new.pem", authority)
        assert isinstance(await client.send("POST", REQUEST, 5), AppAnswer)
        await client.aclose()
        server.close()

    asyncio.run(run())
