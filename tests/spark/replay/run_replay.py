"""A program that a test kills half-way: `run_replay.py plan|stream BOOTSTRAP PREFIX FOLDER RATE [MASTER]`."""

from __future__ import annotations

import sys

from reconsume.cli.spark.session import local_session
from reconsume.spark_connectors.replay import open_plan, replay_stream, run_replay
from tests.spark.few_records import FEW_RECORDS


def main(mode: str, bootstrap_servers: str, prefix: str, folder: str, rate: float, master: str) -> None:
    settings = FEW_RECORDS | {"spark.driver.memory": "512m"}
    spark = local_session(lambda _line: None, master=master, settings=settings)
    if mode == "plan":
        plan = open_plan(spark, folder)
        assert plan is not None
        run_replay(spark, bootstrap_servers, plan, rate=rate)
    else:
        replay_stream(spark, bootstrap_servers, folder, "nightly", rate=rate, topic_prefix=prefix).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]), *(sys.argv[6:] or ["local[1]"]))
