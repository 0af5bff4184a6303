"""`reconsume` in the image with Spark; also the main file of a Spark application, and the program of its pods.

The root file system is read-only, and the command line's cache wants to be written to; so the cache is in /tmp and
the jars in it are links.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from spark_pod import become_pod

from reconsume.cli.entry import main

CACHE = Path(tempfile.gettempdir()) / "reconsume"
JARS = sorted(Path(__file__).resolve().parents[1].glob("cache/*"))


CACHE.mkdir(exist_ok=True)
for jars in JARS:
    with suppress(FileExistsError):
        (CACHE / jars.name).symlink_to(jars)
os.environ.setdefault("RECONSUME_CACHE_DIR", str(CACHE))
become_pod(sys.argv[1:], JARS)
main()
