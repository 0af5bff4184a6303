"""An address of a Spark Connect server that is none is an error in one message."""

from __future__ import annotations

import pytest

from reconsume.cli.spark.options import SparkChoice
from reconsume.cli.spark.session import open_session
from reconsume.delay_levels.errors import ReconsumeError


@pytest.mark.parametrize("remote", ["", "spark:15002", "https://spark:15002"])
def test_an_address_that_is_none_is_refused(remote: str) -> None:
    with pytest.raises(ReconsumeError, match=r"(?s)--remote: .*must start with 'sc://'"):
        open_session(lambda _line: None, SparkChoice("local[*]", remote, {}, {}))
