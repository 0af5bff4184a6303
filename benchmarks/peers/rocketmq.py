"""RocketMQ's own brokers, driven through its client.

Brokers of version 4 listen on all addresses of their machine, so all of it runs in a network namespace of its own that
has nothing but loopback:

    unshare --map-root-user --net python -m benchmarks.peers.rocketmq CLASS_PATH BACKLOG SENT_BACK SECONDS [timer]

The backlog is drained by a warm broker: messages of 40 s are stored, the process is stopped (SIGSTOP) until all of them
are due, and goes on. So the rate is limited by the broker alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from benchmarks.harness.registry import Place, Sample, measurement
from benchmarks.installation import cpu_seconds
from benchmarks.peers.maven import class_path, run_java

VERSIONS: Final = {"4": "4.9.3", "5": "5.5.0"}
LEVELS: Final = "1s 2s 1h 40s 40s 40s 40s"
DUE_SECONDS: Final = 41.0
ALONE_SECONDS: Final = 8.0
"""The client that polls the progress is a JVM too, and would take a core from the broker."""
NAME_SERVER: Final = "127.0.0.1:9876"
BROKER: Final = "127.0.0.1:10911"
_OPEN: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
"""RocketMQ 4 was written for Java 8."""
_BROKER: Final = """
brokerClusterName=bench
brokerName=bench
brokerIP1=127.0.0.1
listenPort=10911
namesrvAddr={name_server}
storePathRootDir={folder}/store
storePathCommitLog={folder}/store/commitlog
messageDelayLevel={levels}
defaultTopicQueueNums=4
flushDiskType=ASYNC_FLUSH
"""


@measurement("peer-rocketmq-4", is_peer=True)
def rocketmq_4(place: Place) -> Iterator[Sample]:
    """RocketMQ 4.9.3: its schedule service, lateness, send-backs."""
    yield from _in_a_namespace(place, "4")


@measurement("peer-rocketmq-5", is_peer=True)
def rocketmq_5(place: Place) -> Iterator[Sample]:
    """RocketMQ 5.5.0: its schedule service, its timer, lateness, send-backs."""
    yield from _in_a_namespace(place, "5")


def _in_a_namespace(place: Place, major: str) -> Iterator[Sample]:
    path = class_path("rocketmq", VERSIONS[major], common=("Figures",))
    sizes = place.size(200_000, 20_000), place.size(50_000, 5_000), place.size(20, 5)
    program = [sys.executable, "-m", "benchmarks.peers.rocketmq", path, *map(str, sizes)]
    command = ["unshare", "--map-root-user", "--net", *program, *(["timer"] if major == "5" else [])]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    for case, figure, unit, value in map(json.loads, told.splitlines()):
        yield Sample(case, figure, unit, value)


class _Installation:
    """A name server and a broker; clients print each figure on a line of standard output.

    Args:
        stack: ends both.
        folder: of all that they write.
        path: the class path.
    """

    def __init__(self, stack: ExitStack, folder: Path, path: str) -> None:
        self._folder = folder
        self._path = path
        (folder / "conf").mkdir()
        for name in ("namesrv", "broker"):
            (folder / "conf" / f"logback_{name}.xml").write_text("<configuration/>")
        settings = folder / "broker.conf"
        settings.write_text(_BROKER.format(name_server=NAME_SERVER, folder=folder, levels=LEVELS))
        stack.enter_context(_java(folder, path, "1g", "org.apache.rocketmq.namesrv.NamesrvStartup"))
        _await_port(NAME_SERVER)
        arguments = ("org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings))
        self._broker = stack.enter_context(_java(folder, path, "4g", *arguments))
        _await_port(BROKER)
        time.sleep(5)  # until the name server knows it

    def run(self, case: str, job: str, topic: str, *arguments: object) -> None:
        """Run a job of `RocketBench`."""
        told = run_java(self._path, "RocketBench", job, NAME_SERVER, topic, *map(str, arguments), home=self._folder)
        for figure, unit, value in told:
            print(json.dumps([case, figure, unit, value]), flush=True)

    def drain(self, messages: int, levels: int, state: str) -> None:
        """Measure the delivery of a backlog, and the broker's CPU for it."""
        topic = f"due-{state}-{levels}"
        began = time.monotonic()
        self.run("", "fill", topic, messages, levels)
        if (filled := time.monotonic() - began) > DUE_SECONDS - 1:
            raise RuntimeError(f"storing {messages:,} messages took {filled:.0f} s: the first are due")
        self._broker.send_signal(signal.SIGSTOP)
        time.sleep(DUE_SECONDS)
        before = cpu_seconds(self._broker.pid)
        self._broker.send_signal(signal.SIGCONT)
        time.sleep(ALONE_SECONDS)
        spent = (cpu_seconds(self._broker.pid) - before) / messages * 1e6
        case = f"backlog, {levels} level{'s' * (levels > 1)}, {state}"
        self.run(case, "drained", topic, messages)
        print(json.dumps([case, "the broker's CPU", "s per million", spent]), flush=True)


def _main(path: str, backlog: str, sent_back: str, seconds: str, timer: str = "") -> None:
    _raise_loopback()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconsume-rocketmq-")))
        installation = _Installation(stack, folder, path)
        for rate in (100, 1_000, 5_000):
            installation.run(f"steady, {rate:,}/s", "lateness", f"steady-{rate}", rate, seconds, "level")
        if timer:
            installation.run("timer, 1,000/s", "lateness", "timer", 1_000, seconds, timer)
        # A JVM is several times faster when it is warm: what it does first is told apart.
        for state in ("cold", "warm"):
            installation.run(f"send-backs, {state}", "sendbacks", f"back-{state}", sent_back)
        for state, levels in (("cold", 1), ("warm", 1), ("warm", 4)):
            installation.drain(int(backlog), levels, state)


@contextmanager
def _java(folder: Path, path: str, heap: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = ["java", f"-Xms{heap}", f"-Xmx{heap}", *_OPEN, f"-Duser.home={folder}", "-cp", path, *arguments]
    environment = os.environ | {"ROCKETMQ_HOME": str(folder)}
    with (folder / "servers.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _await_port(address: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as one:
            if one.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"RocketMQ does not listen on {address} within 60 s")


def _raise_loopback() -> None:
    """Raise the interface `lo`, which is down in a new namespace: SIOCSIFFLAGS with IFF_UP and IFF_RUNNING."""
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


if __name__ == "__main__":
    _main(*sys.argv[1:])
