"""An app that one message kills: `python -m tests.integration.push.fragile_app PORT`; prints what it answered."""

from __future__ import annotations

import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Fragile(BaseHTTPRequestHandler):
    """Answers 200; `poison` ends the process, and after `half 422` nothing but a part of such an answer comes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        sys.stdout.write(f"{body} {self.headers['reconsume-times']}\n")
        sys.stdout.flush()
        word, _, number = body.partition(" ")
        if word == "poison":
            os._exit(1)
        if word == "half":
            self.send_response(int(number))
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b"half of it")
            self.close_connection = True
            return
        time.sleep(0.02)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Prints only what was delivered."""


def main() -> None:
    """Serve until killed."""
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Fragile).serve_forever()


if __name__ == "__main__":
    main()
