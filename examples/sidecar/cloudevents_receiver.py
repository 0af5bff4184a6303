"""A receiver of CloudEvents with their SDK for Python and the standard library's HTTP server.

    python -m examples.sidecar.cloudevents_receiver PORT

Behind `profile = "native"`: the body is the record's value, the attributes are headers.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http_event


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        event = from_http_event(HTTPMessage(headers=dict(self.headers.items()), body=body))
        flight = event.get_data()
        line = f"event {event.get_id()} {event.get_extension('partitionkey')} {flight!r}\n"
        print(line, end="", flush=True)  # whole, though other threads print too
        if isinstance(flight, dict) and flight.get("dep_time") is None:
            self.answer(503, {"retry-after": "2"})  # it is delivered again, no sooner than in 2 s
        elif isinstance(flight, dict) and flight.get("cancelled"):
            self.answer(422, {"reconsume-error-type": "Cancelled", "reconsume-error-message": "it never took off"})
        else:
            self.answer(204, {})

    def answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"content-length": "0"} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
