"""A schema registry over HTTP in this process, with the answers of Confluent's."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.waiting import PATIENCE

__all__ = ["Registry", "running_registry"]


@dataclass
class Registry:
    """What it holds, by id; a schema that others refer to has a subject named after its id.

    Attributes:
        asked: the paths of all requests.
    """

    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def add(self, schema: Any, kind: str = "AVRO", refers_to: tuple[tuple[str, int], ...] = ()) -> int:
        """Give a schema an id: text, or the serialized descriptor of a Protobuf file."""
        text = base64.b64encode(schema).decode() if isinstance(schema, bytes) else json.dumps(schema)
        references = [{"name": name, "subject": f"s{number}", "version": 1} for name, number in refers_to]
        number = len(self.schemas) + 1
        self.schemas[number] = {"schema": text, "schemaType": kind, "references": references, "id": number}
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        """Return status and body."""
        self.asked.append(path)
        asked = urlsplit(path)
        *_, part, last = asked.path.split("/")
        number = int(last) if part == "ids" else int(asked.path.split("/")[2].removeprefix("s"))
        if (found := self.schemas.get(number)) is None:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        is_file = found["schemaType"] == "PROTOBUF" and parse_qs(asked.query).get("format") != ["serialized"]
        shown = found | {"subject": f"s{number}", "version": 1}
        return 200, shown | ({"schema": 'syntax = "proto3";'} if is_file else {})


@contextmanager
def running_registry() -> Iterator[Registry]:
    """A registry that answers at its URL."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)
