"""What a new user does, page by page: an empty environment with the extras that the page names, and its commands.

Only ports are changed, for tests run beside each other, and `--yes` answers questions: there is not a terminal.

| page | test |
|---|---|
| README "Try it without Kafka" | `test_readme_without_kafka` |
| README "Use it" | `test_readme_on_a_real_kafka` |
| docs/quick-start.md | `test_quick_start` |
| docs/drop-in.md | `test_drop_in` |
| docs/sidecar.md | `test_sidecar_with_curl` |
| docs/sidecar-push.md | `test_push` |
| docs/console.md | `test_console` |
| docs/testing.md | `test_a_file_for_pytest` |
| docs/reconcile.md, docs/replay.md | `test_reconcile_and_replay` |
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.cli.broker.ports import free_port
from tests.spark.few_records import FEW_RECORDS
from tests.support.brokers.kafka import local_kafka
from tests.support.docs.environments import Environment, build_wheel, make_environment
from tests.support.docs.pages import blocks, named_extras, programs_alone, pytest_files, python_blocks
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(12)]

FIRST_FOUR: Final = 4
"""Records of the topic `flights` that docs/sidecar.md sends back by their offsets."""
DIES: Final = """
from reconsume.consumers import ConsumeFromWhere, PushConsumer

consumer = PushConsumer(
    "arrivals", bootstrap_servers="localhost:9092", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)
consumer.subscribe("flights")


@consumer.listener
def fail(messages, context):
    context.delay_level_when_next_consume = -1
    raise TimeoutError("timeout at the gate")


consumer.run()
"""


class Journeys:
    """A Kafka with schedulers, and the environments of users who have the checkout's wheel."""

    def __init__(self, folder: Path, bootstrap_servers: str) -> None:
        self._folder = folder
        self.bootstrap_servers = bootstrap_servers
        self.wheel = build_wheel(folder)
        self._made: dict[str, Environment] = {}
        self._spark = folder / "spark"
        self._spark.mkdir()
        # For commands that stay as they are on their page.
        settings = "".join(f"{name} {value}\n" for name, value in FEW_RECORDS.items())
        (self._spark / "spark-defaults.conf").write_text(settings)
        self.admin = KafkaAdmin({"bootstrap.servers": bootstrap_servers})

    def environment(self, extras: str = "") -> Environment:
        """One with these extras and nothing else; journeys that name the same ones share it."""
        if extras not in self._made:
            folder = self._folder / f"venv-{extras.replace(',', '-') or 'core'}"
            self._made[extras] = make_environment(
                self.wheel,
                folder,
                extras,
                RECONSUME_BOOTSTRAP_SERVERS=self.bootstrap_servers,
                SPARK_CONF_DIR=str(self._spark),
                XDG_STATE_HOME=str(self._folder / "state"),
            )
        return self._made[extras]

    def here(self, text: str) -> str:
        """A text of a page for this Kafka."""
        return text.replace("localhost:9092", self.bootstrap_servers)

    def holds(self, topic: str) -> bool:
        """Whether a topic exists and has a record."""
        return bool(self.admin.partitions([topic])) and self.admin.end_offsets([(topic, 0)])[topic, 0] > 0


def produce(bootstrap_servers: str, *values: str) -> None:
    """Some flights."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for value in values:
        producer.produce("flights", value.encode(), b"UA1545")
    assert producer.flush(PATIENCE) == 0


@pytest.fixture(scope="module")
def journeys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journeys]:
    folder = tmp_path_factory.mktemp("journeys")
    with ExitStack() as stack:
        kafka = stack.enter_context(local_kafka())
        one = Journeys(folder, kafka.bootstrap_servers)
        one.admin.create("flights", 1, 1, {})
        produce(kafka.bootstrap_servers, *(json.dumps({"flight": number}) for number in range(FIRST_FOUR)))
        cli = one.environment(named_extras("docs/sidecar.md"))
        cli.shell("reconsume topics apply --yes", folder)
        for number in range(2):
            command = [cli.command("reconsume"), "scheduler"]
            stack.enter_context(cli.running(command, folder, folder / f"scheduler-{number}"))
        yield one


@contextmanager
def program(
    journeys: Journeys, environment: Environment, text: str, folder: Path, name: str = "program"
) -> Iterator[Path]:
    """A program of a page while it runs, and where its output goes."""
    file, out = folder / f"{name}.py", folder / f"{name}.out"
    file.write_text(journeys.here(text))
    with environment.running([environment.python, str(file)], folder, out):
        yield out


def prints(out: Path, text: str) -> bool:
    """Wait for a text of the output."""
    return wait_until(lambda: text in out.read_text(), f"{text!r} is printed") or True


def get(address: str) -> bytes:
    """The body of an answer, as soon as there is one."""

    def answer() -> bytes:
        try:
            with urllib.request.urlopen(f"http://{address}", timeout=10) as response:
                return bytes(response.read())
        except OSError:
            return b""

    return wait_until(answer, f"an answer of {address}")


def block_with(page: str, text: str) -> str:
    """The shell block of a page in which a text stands."""
    return next(block for block in blocks(page, "sh") if text in block)


def test_readme_without_kafka(journeys: Journeys, tmp_path: Path) -> None:
    (found, printed), *_ = (one for one in programs_alone() if one[0].where.startswith("README.md"))
    (tmp_path / "program.py").write_text(found.text)
    core = journeys.environment()
    assert core.shell("python program.py", tmp_path) == printed


def test_drop_in(journeys: Journeys, tmp_path: Path) -> None:
    (found,) = (one for one in python_blocks(complete=True) if one.where.startswith("docs/drop-in.md"))
    with program(journeys, journeys.environment(), found.text, tmp_path) as out:
        produce(journeys.bootstrap_servers, "no flight", '{"flight": 1545}')
        assert prints(out, "flights: 1545 departs at try 1")


def test_sidecar_with_curl(journeys: Journeys, tmp_path: Path) -> None:
    page, port = "docs/sidecar.md", free_port()
    environment = journeys.environment(named_extras(page))
    *before, start = (
        line for line in journeys.here(block_with(page, "reconsume sidecar")).splitlines() if "pip install" not in line
    )
    environment.shell("\n".join(before), tmp_path)
    management = f"127.0.0.1:{free_port()}"
    ports = ["--listen", f"127.0.0.1:{port}", "--management", management]
    command = [environment.command("reconsume"), *shlex.split(start)[1:], *ports]
    with environment.running(command, tmp_path, tmp_path / "sidecar"):
        get(f"{management}/readyz")
        calls = [re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{port}", one) for one in blocks(page, "sh") if "curl" in one]
        by_reference, by_value, several = (
            json.loads(environment.shell(call, tmp_path)) for call in calls if "/send-back" in call
        )
        assert (by_reference["outcome"], by_reference["level"], by_value["level"]) == ("DELAYED", 3, 5)
        assert [one["outcome"] for one in several["records"]] == ["ACKNOWLEDGED", "DELAYED"]
        (group,) = (call for call in calls if "-X PUT" in call)
        assert "reconsume.RETRY.departures" in environment.shell(group, tmp_path)


def test_push(journeys: Journeys, tmp_path: Path) -> None:
    page = "docs/sidecar-push.md"
    bodies: list[tuple[str, bytes]] = []

    class App(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), App) as app:
        threading.Thread(target=app.serve_forever, daemon=True).start()
        toml = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{app.server_port}", blocks(page, "toml")[0])
        (tmp_path / "reconsume.toml").write_text(toml)
        environment = journeys.environment(named_extras(page))
        start = block_with(page, "reconsume sidecar").splitlines()[-1]
        command = [environment.command("reconsume"), *shlex.split(start)[1:]]
        listen = ["--listen", f"127.0.0.1:{free_port()}"]
        with environment.running([*command, *listen], tmp_path, tmp_path / "sidecar"):
            pushed = "/events/flights", b'{"flight": 0}'
            wait_until(lambda: pushed in bodies, "the first flight is pushed")
        app.shutdown()


def test_console(journeys: Journeys, tmp_path: Path) -> None:
    page, port = "docs/console.md", free_port()
    environment = journeys.environment(named_extras(page))
    start = shlex.split(journeys.here(block_with(page, "reconsume console")).splitlines()[-1])[1:]
    command = [environment.command("reconsume"), *start, "--listen", f"127.0.0.1:{port}"]
    with environment.running(command, tmp_path, tmp_path / "console"):
        wait_until(lambda: b"departures" in get(f"127.0.0.1:{port}/"), "the console has read the installation")


def test_a_file_for_pytest(journeys: Journeys, tmp_path: Path) -> None:
    environment = journeys.environment(named_extras("docs/testing.md"))
    environment.install("pytest")
    (tmp_path / "test_page.py").write_text(
        next(one.text for one in pytest_files() if one.where.startswith("docs/testing.md"))
    )
    assert " passed" in environment.shell("python -m pytest -q test_page.py", tmp_path)


def test_reconcile_and_replay(journeys: Journeys, tmp_path: Path) -> None:
    environment = journeys.environment(named_extras("docs/reconcile.md"))
    assert named_extras("docs/replay.md") in ("", named_extras("docs/reconcile.md"))
    with program(journeys, journeys.environment(), DIES, tmp_path, "dies"):
        wait_until(lambda: journeys.holds("reconsume.DLQ.arrivals"), "dead letters of arrivals")
    assert "timeout at the gate" in environment.shell("reconsume dlq list arrivals -o json", tmp_path)
    lines = journeys.here(block_with("docs/reconcile.md", "--report")).splitlines()
    environment.shell("\n".join(one for one in lines if "pip install" not in one), tmp_path)
    assert "<html" in (tmp_path / "report.html").read_text()
    plan, run = block_with("docs/replay.md", "--dry-run").replace("departures", "arrivals").splitlines()
    assert "timeout" in environment.shell(plan, tmp_path)
    environment.shell(f"{run} --yes", tmp_path)
    wait_until(lambda: journeys.holds("reconsume.RETRY.arrivals"), "the schedulers deliver what is sent again")


def test_readme_on_a_real_kafka(journeys: Journeys, tmp_path: Path) -> None:
    """Run late: it adds `[broker]` to the environment that has pyspark already."""
    broker, use = (block_with("README.md", text) for text in ("reconsume broker", "reconsume scheduler"))
    pip, start = (line.partition("#")[0] for line in broker.splitlines())
    environment = journeys.environment(named_extras("docs/reconcile.md"))
    assert shlex.split(pip)[:2] == ["pip", "install"]
    environment.install(shlex.split(pip)[2].replace(".", str(journeys.wheel), 1))
    port = free_port()
    here = re.sub(r"localhost:9092", f"localhost:{port}", use)
    command = [environment.command("reconsume"), *shlex.split(start)[1:], "--port", str(port)]
    with environment.running(command, tmp_path, tmp_path / "broker"), ExitStack() as stack:
        prints(tmp_path / "broker", f"{port}")
        export, apply, scheduler = here.splitlines()
        environment.shell(f"{export}\n{apply.partition('#')[0]} --yes", tmp_path)
        for number in range(2):
            line = ["bash", "-c", f"{export}; exec {scheduler}"]
            stack.enter_context(environment.running(line, tmp_path, tmp_path / f"scheduler-{number}"))
        produce(f"localhost:{port}", "UA1545")
        (found,) = (
            one
            for one in python_blocks(complete=True)
            if one.where.startswith("README.md") and "PushConsumer" in one.text
        )
        file = tmp_path / "readme.py"
        file.write_text(found.text.replace("localhost:9092", f"localhost:{port}"))
        with environment.running([environment.python, str(file)], tmp_path, tmp_path / "out"):
            assert prints(tmp_path / "out", "UA1545")


def test_quick_start(journeys: Journeys, tmp_path: Path) -> None:
    """Its message, its sidecar and its push; the two programs in Python are run with those of all pages.

    Run last: it adds `[sidecar]` to the environment in which schedulers run without web packages above.
    """
    page, ports = "docs/quick-start.md", [free_port() for _ in range(3)]
    environment, extras = journeys.environment(named_extras("docs/reconcile.md")), named_extras(page)
    assert "broker" in extras.split(","), "the environment has pyspark and the CLI, with or without what the page names"
    environment.install(f"{journeys.wheel}[{extras}]")

    def here(text: str) -> str:
        text = journeys.here(text).replace("15080", str(ports[0])).replace("8000", str(ports[2]))
        return text.replace("flights", "quick")

    def sidecar(text: str) -> list[str]:
        words = shlex.split(here(text))[1:]
        addresses = ["--listen", f"127.0.0.1:{ports[0]}", "--management", f"127.0.0.1:{ports[1]}"]
        return [environment.command("reconsume"), *words, *addresses]

    journeys.admin.create("quick", 1, 1, {})
    environment.shell(here(block_with(page, "producer.flush()")), tmp_path)
    with environment.running(sidecar(block_with(page, "--group gates")), tmp_path, tmp_path / "sidecar"):
        get(f"127.0.0.1:{ports[1]}/readyz")
        answer = json.loads(environment.shell(here(block_with(page, "curl")), tmp_path))
        assert (answer["outcome"], answer["topic"]) == ("DELAYED", "reconsume.RETRY.gates")
    app = next(one for one in blocks(page, "python") if one.startswith("# app.py"))
    (tmp_path / "app.py").write_text(here(app))
    (tmp_path / "reconsume.toml").write_text(here(blocks(page, "toml")[0]))
    start = block_with(page, "python app.py").splitlines()[-1]
    with (
        environment.running([environment.python, "-u", "app.py"], tmp_path, tmp_path / "app.out"),
        environment.running(sidecar(start), tmp_path, tmp_path / "push"),
    ):
        assert prints(tmp_path / "app.out", '/events/quick b\'{"flight": "UA1545"}\'')
