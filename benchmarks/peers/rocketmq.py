"""RocketMQ's own brokers, driven through its client.

Brokers of version 4 listen on all addresses of their machine, so all of it runs in a network namespace of its own that
has nothing but loopback:

    unshare --map-root-user --net python -m benchmarks.peers.rocketmq VERSION CLASS_PATH

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
BACKLOG: Final = 200_000
SENT_BACK: Final = 50_000
LEVELS: Final = "1s 2s 1h 40s 40s 40s 40s"
DUE_SECONDS: Final = 41.0
ALONE_SECONDS: Final = 8.0
"""The client that asks what was moved is a JVM too, and would take a core from the broker."""
NAME_SERVER: Final = "127.0.0.1:9876"
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
def rocketmq_4(_place: Place) -> Iterator[Sample]:
    """RocketMQ 4.9.3: its schedule service, lateness, send-backs."""
    yield from _in_a_namespace("4")


@measurement("peer-rocketmq-5", is_peer=True)
def rocketmq_5(_place: Place) -> Iterator[Sample]:
    """RocketMQ 5.5.0: its schedule service, its timer, lateness, send-backs."""
    yield from _in_a_namespace("5")


def _in_a_namespace(major: str) -> Iterator[Sample]:
    path = class_path("rocketmq", VERSIONS[major], common=("Figures",))
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "benchmarks.peers.rocketmq", major, path]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    for case, figure, unit, value in map(json.loads, told.splitlines()):
        yield Sample(case, figure, unit, value)


def _main(major: str, path: str) -> None:
    _raise_loopback()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconsume-rocketmq-")))
        broker = _start(stack, folder, path)
        jobs: list[tuple[str, ...]] = [
            (f"steady, {rate:,}/s", "lateness", f"late{rate}", str(rate), "20", "level") for rate in (100, 1_000, 5_000)
        ]
        if major == "5":
            jobs.append(("timer, 1,000/s", "lateness", "timer", "1000", "20", "timer"))
        # Twice: the first is told as what a cold JVM does.
        jobs += [(f"send-backs, {state}", "sendbacks", f"back-{state}", str(SENT_BACK)) for state in ("cold", "warm")]
        for case, *job in jobs:
            _run(path, case, *job)
        for state, levels in (("cold", 1), ("warm", 1), ("warm", 4)):
            topic = f"due-{state}-{levels}"
            began = time.monotonic()
            _run(path, "", "fill", topic, str(BACKLOG), str(levels))
            filled = time.monotonic() - began
            if filled > DUE_SECONDS - 1:
                raise RuntimeError(f"storing {BACKLOG:,} messages took {filled:.0f} s: the first are due")
            broker.send_signal(signal.SIGSTOP)
            time.sleep(DUE_SECONDS)
            case = f"backlog of {BACKLOG:,}, {levels} level{'s' * (levels > 1)}, {state}"
            before = cpu_seconds(broker.pid)
            broker.send_signal(signal.SIGCONT)
            time.sleep(ALONE_SECONDS)
            spent = (cpu_seconds(broker.pid) - before) / BACKLOG * 1e6
            _run(path, case, "drained", topic, str(BACKLOG))
            print(json.dumps([case, "the broker's CPU", "s per million", spent]), flush=True)


def _run(path: str, case: str, job: str, topic: str, *arguments: str) -> None:
    for figure, unit, value in run_java(path, "RocketBench", job, NAME_SERVER, topic, *arguments):
        print(json.dumps([case, figure, unit, value]), flush=True)


def _start(stack: ExitStack, folder: Path, path: str) -> subprocess.Popen[bytes]:
    """Start a name server and a broker, and wait until a client can use both."""
    (folder / "conf").mkdir()
    for name in ("namesrv", "broker"):
        (folder / "conf" / f"logback_{name}.xml").write_text("<configuration/>")
    settings = folder / "broker.conf"
    settings.write_text(_BROKER.format(name_server=NAME_SERVER, folder=folder, levels=LEVELS))
    stack.enter_context(_java(folder, path, "1g", "org.apache.rocketmq.namesrv.NamesrvStartup"))
    _await_port(NAME_SERVER)
    arguments = ("org.apache.rocketmq.broker.BrokerStartup", "-c", str(settings))
    broker = stack.enter_context(_java(folder, path, "4g", *arguments))
    _await_port("127.0.0.1:10911")
    time.sleep(5)  # until the name server knows it
    return broker


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
