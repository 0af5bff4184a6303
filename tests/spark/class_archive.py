"""The classes that Spark loads, written once and kept for all Sparks of the tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pyspark

from reconsume.bridge.process.environment import cache_folder
from reconsume.cli.broker.class_archive import ClassArchive
from reconsume.cli.broker.java import find_java

__all__ = ["archive_of_spark"]

_PROGRAM: Final = """
import sys
from pyspark.sql import functions as F
from reconsume.cli.spark.session import local_session
spark = local_session(lambda _line: None, master="local[1]")
rows = spark.range(100).withColumn("key", F.col("id") % 7).groupBy("key").agg(F.count("*").alias("number"))
rows.orderBy("key").collect()
rows.write.parquet(sys.argv[1])
spark.read.parquet(sys.argv[1]).createOrReplaceTempView("rows")
spark.sql("SELECT max(number), collect_list(key) FROM rows WHERE number > 1 GROUP BY key").collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""
"""Java's launcher writes an archive too, before Spark does; Spark's is complete when its process has ended."""


def archive_of_spark() -> list[str]:
    """Options for a JVM; none where Java can make no archive."""
    # Another copy of pyspark has other paths, and a JVM takes no archive of those.
    copy = hashlib.sha256(pyspark.__file__.encode()).hexdigest()[:8]
    folder = cache_folder() / f"spark-{pyspark.__version__}-{copy}"
    folder.mkdir(parents=True, exist_ok=True)
    archive = ClassArchive(folder, find_java())
    with folder.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as work:
        fcntl.flock(lock, fcntl.LOCK_EX)
        written = Path(work) / "classes.jsa"
        options = archive.options(written)
        if f"-XX:ArchiveClassesAtExit={written}" in options:
            java = " ".join([os.environ["JDK_JAVA_OPTIONS"], *options])
            command = [sys.executable, "-c", _PROGRAM, str(Path(work) / "rows")]
            subprocess.run(command, check=True, env=os.environ | {"JDK_JAVA_OPTIONS": java})
            archive.keep(written)
    return archive.options()
