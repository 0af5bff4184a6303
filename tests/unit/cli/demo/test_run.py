"""The demo's own requests and its last step."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from reconsume.cli.demo import run
from reconsume.delay_levels.errors import ReconsumeError


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.asked = True  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_scheduler_on_this_machine_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(run, "_READY_SECONDS", 2.0)
    with (
        HTTPServer(("127.0.0.1", 0), Ready) as server,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker,
    ):
        threading.Thread(target=server.handle_request, daemon=True).start()
        run._wait_until_ready(f"http://127.0.0.1:{server.server_port}/readyz", worker)
        worker.communicate(b"\n")
        assert getattr(server, "asked", False)


def test_a_reconcile_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ReconsumeError, match="the reconciliation failed"):
        run._reconcile_in_spark("127.0.0.1:9")
    assert list(tmp_path.iterdir()) == []


def scheduler(_folder: Path) -> None:
    with run._scheduler("127.0.0.1:9", 1):
        pass


def reconcile(folder: Path) -> None:
    run._reconcile_into(folder / "report.html", "127.0.0.1:9")


@pytest.mark.parametrize("start", [scheduler, reconcile])
def test_the_demo_does_not_read_the_settings_of_the_users_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[Path], None]
) -> None:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nenv > "{tmp_path}/environment"\n')
    program.chmod(0o755)
    monkeypatch.setenv("RECONSUME_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(ReconsumeError):
        start(tmp_path)
    assert "RECONSUME_KAFKA_SECURITY_PROTOCOL" not in (tmp_path / "environment").read_text()
