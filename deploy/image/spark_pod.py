"""The entry point of Spark on Kubernetes: pods with the argument `driver` or `executor`.

Spark's own image turns these words into commands with a shell script, entrypoint.sh, which pyspark on PyPI does not
bring.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from reconsume.cli.broker.java import find_java
from reconsume.cli.spark.java import java_home

__all__ = ["become_pod", "role_command"]

_ROLES: Final = ("driver", "executor")
_OPTION: Final = "SPARK_JAVA_OPT_"
_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_ARGUMENTS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def become_pod(arguments: Sequence[str], jars: Sequence[Path]) -> None:
    """Run a driver or an executor in place of this process; return if the arguments ask for neither.

    Args:
        arguments: of the container.
        jars: folders that both have on their class path: the connector for Kafka.
    """
    if not arguments or arguments[0] not in _ROLES:
        return
    spark, java = Path(pyspark.__file__).parent, java_home(find_java())
    class_path = [*(f"{folder}/*" for folder in jars), os.environ.get("SPARK_DIST_CLASSPATH", "")]
    environment = {"PYSPARK_PYTHON": sys.executable} | os.environ
    environment |= {
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark),
        "SPARK_DIST_CLASSPATH": ":".join(part for part in class_path if part),
    }
    command = role_command(arguments, environment, spark, java)
    os.execve(command[0], command, environment)  # noqa: S606 - no shell is wanted


def role_command(arguments: Sequence[str], environment: Mapping[str, str], spark: Path, java: Path) -> list[str]:
    """Return the command of a driver or an executor.

    Args:
        arguments: of the container.
        environment: of the container, with SPARK_DIST_CLASSPATH.
        spark: the folder of pyspark.
        java: the folder of Java.
    """
    if arguments[0] == "driver":
        address = environment["SPARK_DRIVER_BIND_ADDRESS"]
        settings = (f"spark.driver.bindAddress={address}", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}")
        said = [word for setting in settings for word in ("--conf", setting)]
        return [str(spark / "bin" / "spark-submit"), *said, "--deploy-mode", "client", *arguments[1:]]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    said = [word for option, name in _ARGUMENTS.items() for word in (option, environment[name])]
    heap = (f"-Xms{memory}", f"-Xmx{memory}")
    program = (str(java / "bin" / "java"), *_java_options(environment), *heap)
    return [*program, "-cp", _class_path(environment, spark), _BACKEND, *said]


def _java_options(environment: Mapping[str, str]) -> list[str]:
    numbers = sorted(int(name.removeprefix(_OPTION)) for name in environment if name.startswith(_OPTION))
    return [environment[f"{_OPTION}{number}"] for number in numbers]


def _class_path(environment: Mapping[str, str], spark: Path) -> str:
    parts = [
        environment.get("SPARK_CONF_DIR", str(spark / "conf")),
        environment.get("HADOOP_CONF_DIR", ""),
        environment.get("SPARK_CLASSPATH", ""),
        f"{spark}/jars/*",
        environment.get("SPARK_EXTRA_CLASSPATH", ""),
        environment.get("SPARK_DIST_CLASSPATH", ""),
    ]
    return ":".join(part for part in parts if part)
