"""What Spark's operator starts in our image: a driver and an executor, each in a process as in its pod."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reconsume.cli.broker.java import find_java
from reconsume.cli.broker.ports import free_port
from reconsume.cli.spark.session import connector_jars

IMAGE = Path(__file__).parents[3] / "deploy" / "image"
CONNECTOR = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark._jvm.org.apache.spark.sql.kafka010.KafkaSourceProvider()
print(spark.conf.get("spark.driver.bindAddress"), spark.conf.get("spark.app.name"))
"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Our folder of the image, with the connector where the image has it."""
    folder = tmp_path / "image"
    shutil.copytree(IMAGE, folder / "spark")
    jars = connector_jars(find_java(), lambda _: None)
    (folder / "cache").mkdir()
    (folder / "cache" / jars.name).symlink_to(jars)
    return folder


def start(image: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(image / "spark" / "reconsume_main.py"), *arguments]
    environment = os.environ | {"TMPDIR": str(image)} | variables
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=800, env=environment)


def test_the_driver_runs_the_main_file_with_the_connector(image: Path, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(CONNECTOR)
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master=local[1]\nspark.ui.enabled=false\nspark.app.name=ours\n")
    words = ("--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner")
    ran = start(image, "driver", *words, f"local://{tmp_path}/main.py", SPARK_DRIVER_BIND_ADDRESS="127.0.0.1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["127.0.0.1", "ours"]


def test_the_exit_code_of_the_main_file_is_the_driver_s(image: Path, tmp_path: Path) -> None:
    properties = tmp_path / "spark.properties"
    properties.write_text("spark.master=local[1]\n")
    main = f"local://{image}/spark/reconsume_main.py"
    words = ("--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner", main)
    ran = start(image, "driver", *words, "reconcile", "--late", "soon", SPARK_DRIVER_BIND_ADDRESS="127.0.0.1")
    assert "error: --late 'soon': write a duration" in ran.stdout
    assert ran.returncode == 2


def test_the_executor_looks_for_its_driver(image: Path) -> None:
    port = free_port()
    ran = start(
        image,
        "executor",
        SPARK_JAVA_OPT_0="-Dspark.driver.port=7078",
        SPARK_JAVA_OPT_1="-Dspark.rpc.askTimeout=5s",
        SPARK_EXECUTOR_MEMORY="256m",
        SPARK_DRIVER_URL=f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
        SPARK_EXECUTOR_ID="1",
        SPARK_EXECUTOR_CORES="1",
        SPARK_APPLICATION_ID="spark-1",
        SPARK_EXECUTOR_POD_IP="127.0.0.1",
        SPARK_RESOURCE_PROFILE_ID="0",
        SPARK_EXECUTOR_POD_NAME="reconcile-exec-1",
    )
    assert ran.returncode != 0
    assert f"Failed to connect to /127.0.0.1:{port}" in ran.stdout + ran.stderr


def test_other_words_are_commands_of_reconsume(image: Path) -> None:
    ran = start(image, "--version")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("reconsume ")
