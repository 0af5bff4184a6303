"""Fetch Spark's connector for Kafka while the image is built."""

from __future__ import annotations

import sys

from reconsume.cli.broker.java import find_java
from reconsume.cli.spark.session import connector_jars

connector_jars(find_java(), lambda text: print(text, file=sys.stderr))  # noqa: T201 - the log of the build
