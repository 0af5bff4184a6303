"""A console in a thread of the test, on real sockets, and a browser without a screen."""

from __future__ import annotations

import base64
import http.client
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urlencode

from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.settings import ManagementSettings, Settings
from reconsume.console.cluster import ConsoleCluster
from reconsume.console.process import Console
from reconsume.console.settings import ConsoleProcessSettings
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["Answered", "Browser", "Form", "Seen", "basic", "console_settings", "running_console"]


class Form(NamedTuple):
    """A form of a page: where it goes, and the fields that a browser sends if nothing is changed.

    Attributes:
        targets: where each button sends it; Enter in a field presses the first one.
    """

    action: str
    method: str
    fields: list[tuple[str, str]]
    buttons: list[str]
    targets: list[str]


class Seen(HTMLParser):
    """What stands on a page: its forms, its text, its links, its elements."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.places: list[str] = []
        self._words: list[str] = []
        self._area: list[str] | None = None
        self.feed(text)
        self.close()

    @property
    def words(self) -> str:
        """All text, as one line."""
        return " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.attributes.extend(given)
        if tag == "form":
            self.forms.append(Form(given["action"] or "", given["method"] or "", [], [], []))
        elif tag == "input" and given.get("type") == "checkbox":
            self.places.append(given["value"] or "")
        elif tag == "input" and self.forms:
            self.forms[-1].fields.append((given["name"] or "", given.get("value") or ""))
        elif tag == "textarea" and self.forms:
            self._area = [given["name"] or ""]
        elif tag == "button" and self.forms:
            self.forms[-1].buttons.append(given.get("name") or "")
            self.forms[-1].targets.append(given.get("formaction") or self.forms[-1].action)
        elif tag == "a":
            self.links.append(given["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            # Browsers leave out the first end of a line, and send all others as CR LF.
            text = "".join(self._area[1:]).removeprefix("\n").replace("\r\n", "\n").replace("\n", "\r\n")
            self.forms[-1].fields.append((self._area[0], text))
            self._area = None

    def handle_data(self, data: str) -> None:
        self._words.append(data)
        if self._area is not None:
            self._area.append(data)

    def form(self, end: str) -> Form:
        """The form whose address ends so."""
        return next(one for one in self.forms if one.action.partition("?")[0].endswith(end))


class Answered(NamedTuple):
    """What came back over the socket."""

    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def seen(self) -> Seen:
        """What stands on the page."""
        return Seen(self.text)


def basic(name: str, password: str) -> dict[str, str]:
    """As browsers say it."""
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@dataclass
class Browser:
    """Asks a console that runs.

    Attributes:
        headers: that it always sends.
        management: the other port of the console.
    """

    address: str = ""
    management: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        try:
            connection.request(method, path, body, self.headers | dict(headers or {}))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        found: dict[str, str] = {}
        for name, value in answer.getheaders():
            found[name.lower()] = ", ".join(filter(None, (found.get(name.lower()), value)))
        return Answered(answer.status, text, found)

    def get(self, path: str, **headers: str) -> Answered:
        """Look at a page."""
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, fields: Sequence[tuple[str, str]], **headers: str) -> Answered:
        """Send a form, as one of the console's own pages does."""
        kind = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin", "origin": "null"}
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", path, urlencode(fields).encode(), kind | more)

    def send(self, form: Form, *more: tuple[str, str]) -> Answered:
        """Press the button of a form."""
        return self.post(form.action, [*form.fields, *more])

    def probe(self, path: str) -> Answered:
        """Ask the management port."""
        return Browser(self.management).get(path)


def console_settings(settings: Settings, **console: Any) -> ConsoleProcessSettings:
    """The settings of an installation, on free ports."""
    return ConsoleProcessSettings(
        bootstrap_servers=settings.bootstrap_servers,
        kafka=settings.kafka,
        topic_prefix=settings.topic_prefix,
        topics=settings.topics,
        management=ManagementSettings(port=0),
        console={"listen": {"port": 0}} | console,
    )


@contextmanager
def running_console(
    settings: ConsoleProcessSettings, cluster: ConsoleCluster | None = None, clock: Clock = now_ms
) -> Iterator[Browser]:
    """A console that answers; what ended it before its time fails the test."""
    browser = Browser()
    began = threading.Event()
    failures: list[BaseException] = []

    def begun(pages: str, management: str) -> None:
        browser.address, browser.management = pages, management
        began.set()

    console = Console(settings, begun, cluster=cluster, clock=clock)

    def work() -> None:
        try:
            console.run(browser.stop)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=work, name="console-under-test")
    thread.start()
    try:
        wait_until(lambda: began.is_set() or failures, "the console serves")
        yield browser
    finally:
        browser.stop.set()
        thread.join(PATIENCE)
    if failures:
        raise failures[0]
    assert not thread.is_alive()
