"""A headless Chromium, driven over its DevTools protocol: real JavaScript, a real keyboard."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import PATIENCE, wait_until

__all__ = ["ChromiumPage", "axe_source", "chromium_page"]

_AXE = "axe-core-4.14.1"
_AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
    *("--remote-debugging-port=0", "--remote-allow-origins=*", "about:blank"),
)
_KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class ChromiumPage:
    """One tab.

    Attributes:
        complaints: what the page wrote to its console as an error, refusals of the policy for content among them.
    """

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self._socket = socket
        self._session = session
        self._number = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        content = {"id": self._number, "method": method, "params": parameters, "sessionId": self._session}
        self._socket.send(json.dumps(content))
        while True:
            told = json.loads(self._socket.recv(timeout=PATIENCE))
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] == "error":
            self.complaints.append(told["params"]["entry"]["text"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(told["params"]["exceptionDetails"]))

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression; promises are awaited."""
        found = self.command("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def go(self, url: str) -> None:
        """Open an address, and wait until it is there."""
        self.evaluate("window.isOld = true")
        self.command("Page.navigate", url=url)
        self._loaded()

    def _loaded(self) -> None:
        ready = "!window.isOld && document.readyState === 'complete'"
        wait_until(lambda: self._try(ready), "the page is loaded")

    def _try(self, script: str) -> bool:
        """Whether it is true; a page that is being left cannot say."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value") is True

    @property
    def text(self) -> str:
        """What a person reads, as one line."""
        return " ".join(str(self.evaluate("document.body ? document.body.innerText : ''")).split())

    @property
    def path(self) -> str:
        """The address without its host."""
        return str(self.evaluate("location.pathname + location.search"))

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows it, without a reload by this test."""
        try:
            wait_until(lambda: text in self.text)
        except AssertionError:
            pytest.fail(f"{self.path} does not show {text!r} but {self.text[:2_000]!r}; {self.complaints}")

    def follow(self, words: str, kind: str = "a, button") -> None:
        """Press the first link or button with these words, and wait for the page that it leads to."""
        script = (
            f"[...document.querySelectorAll({json.dumps(kind)})].find(x => x.innerText.includes({json.dumps(words)}))"
        )
        wait_until(lambda: self._try(f"!!{script}"), f"there is {words!r}: {self.text[:2_000]}")
        self.evaluate(f"window.isOld = true, {script}.click()")
        self._loaded()

    def fill(self, name: str, text: str) -> None:
        """Type into the field of this name."""
        self.evaluate(f"document.querySelector('[name={name}]').focus()")
        self.evaluate("document.activeElement.select && document.activeElement.select()")
        self.command("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """Press a key."""
        code = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": _KEYS[key]}
        self.command("Input.dispatchKeyEvent", type="rawKeyDown", **code)
        if key != "Tab":
            self.command("Input.dispatchKeyEvent", type="char", text="\r" if key == "Enter" else key, **code)
        self.command("Input.dispatchKeyEvent", type="keyUp", **code)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window a width."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def serious_findings(self, axe: str) -> list[str]:
        """Return what axe finds serious or critical on this page."""
        self.evaluate(axe)
        found = self.evaluate("axe.run(document).then(x => JSON.stringify(x.violations))")
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in json.loads(found)
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def screenshot(self, file: Path) -> None:
        """Keep what is seen."""
        file.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium_page(folder: Path) -> Iterator[ChromiumPage]:
    """A browser with one tab; skips the test where no Chromium is installed."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    line = [program, f"--user-data-dir={folder}", *_QUIET]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = next(one.rpartition(" ")[2].strip() for one in process.stderr if "DevTools listening" in one)
            with connect(address, max_size=None, open_timeout=PATIENCE) as socket:
                socket.send(json.dumps({"id": 0, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
                target = _answer(socket, 0)["targetId"]
                attach = {"targetId": target, "flatten": True}
                socket.send(json.dumps({"id": -1, "method": "Target.attachToTarget", "params": attach}))
                yield ChromiumPage(socket, _answer(socket, -1)["sessionId"])
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def _answer(socket: ClientConnection, number: int) -> dict[str, Any]:
    while True:
        told: dict[str, Any] = json.loads(socket.recv(timeout=PATIENCE))
        if told.get("id") == number:
            found: dict[str, Any] = told["result"]
            return found


def axe_source(folder: Path) -> str:
    """The program of axe-core, from npm; skips the test where npm is missing."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    subprocess.run([npm, "pack", "--silent", _AXE.replace("core-", "core@")], cwd=folder, check=True, timeout=120)
    with tarfile.open(folder / f"{_AXE}.tgz") as package:
        file = package.extractfile("package/axe.min.js")
        assert file is not None
        text = file.read()
    assert hashlib.sha256(text).hexdigest() == _AXE_SHA256
    return text.decode()
