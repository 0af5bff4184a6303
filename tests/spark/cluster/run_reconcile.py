"""A program that a test disturbs half-way: `run_reconcile.py MASTER BOOTSTRAP PREFIX LEDGER`.

It prints each step, waits for a line once it is judging, and prints its figures at the end.
"""

from __future__ import annotations

import json
import sys

from reconsume.cli.spark.options import SparkChoice
from reconsume.cli.spark.session import open_session
from reconsume.spark_connectors import reconcile
from reconsume.spark_connectors.reconcile import summarise
from reconsume.spark_connectors.reconcile.records import records
from tests.spark.few_records import FEW_RECORDS


def main(master: str, bootstrap_servers: str, prefix: str, ledger: str) -> None:
    records.PRODUCERS_TIME = -1  # type: ignore[misc] # copies keep their times, see conftest.py
    settings = FEW_RECORDS | {"spark.sql.shuffle.partitions": "3", "spark.driver.memory": "512m"}
    spark = open_session(lambda _line: None, SparkChoice(master, None, settings, {}), sends=False)

    def tell(step: str) -> None:
        print(step, flush=True)  # noqa: T201
        if step == "judging the attempts":
            sys.stdin.readline()

    found = reconcile(spark, bootstrap_servers, topic_prefix=prefix, ledger=ledger, progress=tell)
    print(json.dumps(summarise(found.ledger, found.now, found.since), default=str))  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
