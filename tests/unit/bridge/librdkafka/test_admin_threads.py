"""An admin client may become garbage while it answers."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc, threading
from reconsume.bridge.kafka.clients import make_admin
from reconsume.bridge.librdkafka.admin_threads import destroy_kept

gc.disable()
collected = threading.Event()

def collect(_):
    gc.collect()
    collected.set()

def abandon():
    client = make_admin({"bootstrap.servers": "localhost:1", "log_level": 0})
    client.describe_cluster(request_timeout=0.2).add_done_callback(collect)
    client.itself = client

abandon()
assert collected.wait(300), "no answer"
print("kept:", destroy_kept())
"""


def test_a_client_that_is_collected_in_its_own_thread_does_not_end_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "kept: 1\n"), done.stderr
