"""`HOST:PORT` of the command line."""

from __future__ import annotations

import pytest

from reconsume.cli.common import host_and_port
from reconsume.delay_levels.errors import IllegalSetting


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9", "127.0.0.1", 9),
        ("localhost:0", "localhost", 0),
        ("[::1]:9", "::1", 9),
        ("[::]:9", "::", 9),
        ("[fe80::1%eth0]:9", "fe80::1%eth0", 9),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    assert host_and_port(text, "--listen", 1) == {"host": host, "port": port}


@pytest.mark.parametrize(
    "text", ["", "9", ":9", "localhost", "localhost:", "localhost:http", "::1", "::1:9", "[::1]", "[a]:9"]
)
def test_what_is_none_is_refused_with_examples(text: str) -> None:
    with pytest.raises(IllegalSetting) as refused:
        host_and_port(text, "--listen", 15083)
    example = "--listen 127.0.0.1:15083 or --listen [::1]:15083"
    assert str(refused.value) == f"--listen {text!r}: write HOST:PORT, such as {example}"


def test_an_option_that_is_not_given() -> None:
    assert host_and_port(None, "--listen", 1) is None
