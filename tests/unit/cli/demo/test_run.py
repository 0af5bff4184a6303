"""The demo's own requests and its last step."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
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
