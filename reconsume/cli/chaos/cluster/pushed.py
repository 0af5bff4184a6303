"""A member of the group that is a sidecar, and the app that it pushes to.

As a program it is the app: `python -m reconsume.cli.chaos.cluster.pushed PORT BOOTSTRAP_SERVERS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

from reconsume.cli.chaos.workload import GROUP, ORIGIN, PROCESSED, SESSION, failures_in
from reconsume.cli.judging.judge import MAX_RECONSUME_TIMES
from reconsume.cli.processing import Processing

_LONGER_THAN_ANY_FAULT: Final = 600
"""A longer delivery counts as a failure of the app, and a message must fail exactly as often as it says."""
_FAILED: Final = 500
_DONE: Final = 204


def sidecar_command(folder: Path, bootstrap_servers: str, app_port: int) -> list[str]:
    """Return the command of a sidecar in the group; its settings are a file in the folder."""
    settings: Mapping[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "kafka": {"auto.offset.reset": "earliest", **SESSION},
        "sidecar": {"listen": {"port": 0}},
        "management": {"port": 0},
        "subscriptions": [
            {
                "group": GROUP,
                "topics": [ORIGIN],
                "url": f"http://127.0.0.1:{app_port}",
                "order": "none",
                "exactly_once": True,
                "max_reconsume_times": MAX_RECONSUME_TIMES,
                "consume_timeout_seconds": _LONGER_THAN_ANY_FAULT,
            }
        ],
    }
    file = folder / "sidecar.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML too
    return [sys.executable, "-P", "-m", "reconsume", "sidecar", "--config", str(file)]


def app_command(port: int, bootstrap_servers: str) -> list[str]:
    """Return the command of the app."""
    return [sys.executable, "-P", "-m", "reconsume.cli.chaos.cluster.pushed", str(port), bootstrap_servers]


class _App(BaseHTTPRequestHandler):
    """Fails as often as a message says, then processes it."""

    protocol_version = "HTTP/1.1"
    processing: ClassVar[Processing]

    def do_POST(self) -> None:
        """Handle one message."""
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        status = _FAILED
        if int(self.headers["reconsume-times"]) >= failures_in(body):
            self.processing.process(body, self.headers["reconsume-message-id"])
            status = _DONE
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: the app fails on purpose."""


def serve(port: int, bootstrap_servers: str) -> None:
    """Serve until killed."""
    _App.processing = Processing(bootstrap_servers, PROCESSED, may_repeat=True)
    with ThreadingHTTPServer(("127.0.0.1", port), _App) as server:
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
