"""Commits of many groups: the end of the process does not wait for a coordinator that is silent."""

from __future__ import annotations

import socket
import subprocess
import sys

PROGRAM = """
import sys, threading
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.commits_of_groups import commits_of_groups

cluster = Cluster(Settings(bootstrap_servers=sys.argv[1]))
asked = {f"group-{number}": [("topic", 0)] for number in range(20)}
threading.Thread(target=commits_of_groups, args=(cluster, asked), daemon=True).start()
sys.stdin.read()
"""


def test_a_process_ends_though_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, address], stdin=subprocess.PIPE)
        try:
            silent.settimeout(60)
            asking = [silent.accept()[0] for _ in range(16)]
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(25) == 0, "a request waits for 30 s"
            for one in asking:
                one.close()
        finally:
            process.kill()
            process.wait()
