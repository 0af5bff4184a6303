"""The child process that asks for offsets of many groups."""

from __future__ import annotations

import subprocess
import sys


def test_it_can_be_imported_without_the_modules_that_windows_lacks() -> None:
    code = "import sys; sys.modules['resource'] = None; import reconsume.bridge.librdkafka.offsets_of_groups"
    subprocess.run([sys.executable, "-c", code], check=True)
