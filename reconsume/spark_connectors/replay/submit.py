"""For `spark-submit`: make a plan and, with `--yes`, run it; prints one line of JSON.

The driver needs only pyspark and this package. spark-submit provides the session's settings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.delay_levels.human_text import json_text, pair, visible
from reconsume.spark_connectors.failures import explained
from reconsume.spark_connectors.replay import open_plan, plan_replay, replay_report, replay_stream, run_replay
from reconsume.spark_connectors.replay.plan import PLAN_OPTIONS
from reconsume.spark_connectors.replay.stream import plans_of

_ZONE: Final = "spark.sql.session.timeZone"
"""Spark's default is Java's zone: times in `--where` would have another meaning than for `reconsume replay`."""


def submit(spark: SparkSession, arguments: Sequence[str]) -> dict[str, Any]:
    """Carry out the arguments; return the result to print.

    Raises:
        ReconsumeError: an invalid argument, or Spark failed.
    """
    said = _parser().parse_args(arguments)
    options = _options(said.option)
    chosen: dict[str, Any] = {
        "where": said.where,
        "groups": said.group,
        "topics": said.topic,
        "target": said.to,
        "group": said.for_group,
        "max_replays": said.max_replays,
        "topic_prefix": said.topic_prefix,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    how: dict[str, Any] = {"rate": said.rate, "bulk_partitions": said.bulk_partition}
    how["retention_days"] = said.retention_days
    if said.stream is not None:
        if not said.yes:
            raise IllegalSetting("--stream sends without asking: pass --yes")
        with explained(f"the stream {said.stream} stopped"):
            query = replay_stream(
                spark, said.bootstrap_servers, said.plan, said.stream, options=options, **how, **chosen
            )
            query.awaitTermination()
        plans = plans_of(spark, said.plan, query)
        counts = sum((Counter(one.counts) for one in plans), Counter[str]())
        return {"stream": said.stream, "plans": [one.plan_id for one in plans], "counts": counts}
    plan = open_plan(spark, said.plan)
    if plan is None:
        plan = plan_replay(spark, said.bootstrap_servers, said.plan, options=options, **chosen)
    plan.check_same(chosen, {**PLAN_OPTIONS, "topic_prefix": "--topic-prefix"})
    result: dict[str, Any] = {"plan_id": plan.plan_id, "where": plan.where, "counts": dict(plan.counts)}
    if said.yes:
        ran = run_replay(spark, said.bootstrap_servers, plan, options=options, **how)
        result |= {"sent": ran.sent, "before": ran.before}
    with explained("the report cannot be made"):
        report = replay_report(spark, said.bootstrap_servers, plan, options=options)
        report.write.mode("overwrite").parquet(f"{said.plan}/report")
    return result


def main() -> None:
    """Run in the session that spark-submit has prepared."""
    spark = SparkSession.builder.appName("reconsume replay").getOrCreate()
    try:
        if _ZONE not in spark.conf.getAll:  # it has only what is set
            spark.conf.set(_ZONE, "UTC")
        result = submit(spark, sys.argv[1:])
    except ReconsumeError as error:
        sys.exit(visible(f"error: {error}"))
    finally:
        spark.stop()
    sys.stdout.write(json_text(result) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="submit.py", description="Replay dead letters.")
    parser.add_argument("--bootstrap-servers", required=True, help="host:port of Kafka")
    parser.add_argument("--plan", required=True, metavar="FOLDER", help="made there, or gone on with")
    parser.add_argument("--where", metavar="SQL", help="which dead letters")
    parser.add_argument("--group", action="append", help="consumer group; may be given several times")
    parser.add_argument("--topic", action="append", help="a dead-letter topic to read in place of the groups'")
    parser.add_argument("--to", choices=("retry", "origin"))
    parser.add_argument("--for-group", help="group of dead letters that do not name one")
    parser.add_argument("--max-replays", type=int, help="leave out messages that were replayed this often (2)")
    parser.add_argument("--rate", type=float, help="maximum records per second")
    parser.add_argument(
        "--bulk-partition", type=int, action="append", default=[], help="of DELAY.0s, behind the normal ones; several"
    )
    parser.add_argument("--retention-days", type=float, default=7, help="topics.retention_days of the installation")
    parser.add_argument("--stream", metavar="NAME", help="replay what came since this name's last run")
    parser.add_argument("--topic-prefix", help="of the installation (reconsume.)")
    parser.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="of Spark's Kafka source")
    parser.add_argument("--yes", action="store_true", help="send; without it only the plan is made")
    return parser


def _options(texts: Sequence[str]) -> dict[str, str]:
    return dict(pair("--option", text, "KEY=VALUE, such as kafka.security.protocol=SSL") for text in texts)


if __name__ == "__main__":
    main()
