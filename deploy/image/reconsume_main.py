"""`reconsume` in the image with Spark, also as the main file of a Spark application.

The root file system is read-only, and the command line's cache wants to be written to; so the cache is in /tmp and
the jars in it are links.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from reconsume.cli.main import main

CACHE = Path("/tmp/reconsume")  # noqa: S108 - of a container: nobody else is there

CACHE.mkdir(exist_ok=True)
for jars in Path("/opt/reconsume/cache").iterdir():
    with suppress(FileExistsError):
        (CACHE / jars.name).symlink_to(jars)
os.environ.setdefault("RECONSUME_CACHE_DIR", str(CACHE))
main()
