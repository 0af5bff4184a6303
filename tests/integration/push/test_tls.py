"""An app behind TLS: its certificate is checked, and ours is shown."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import app, pushing
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `localhost` that signs itself, for the app, and one for us."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("app", "ours"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
                *("-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={name}"),
                *("-addext", "subjectAltName=DNS:localhost"),
            ],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    return folder


def server(keys: Path, *, asks: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "app.pem", keys / "app.key")
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(keys / "ours.pem")
    return context


@pytest.mark.parametrize("asks", [False, True], ids=["tls", "mtls"])
def test_a_message_reaches_an_app_behind_tls(here: Installation, keys: Path, *, asks: bool) -> None:
    group, topic = here.name(f"tls-{asks}-group"), here.topic(f"tls-{asks}")
    here.produce(topic, b"m")
    own = {"cert_file": keys / "ours.pem", "key_file": keys / "ours.key"} if asks else {}
    with (
        app(lambda _one, _before: {}, tls=server(keys, asks=asks)) as one,
        pushing(here, group, topic, one.url, ca_file=keys / "app.pem", **own),
    ):
        wait_until(lambda: here.committed(group, topic) == 1, "it is committed")
    assert [delivered.value for delivered in one.seen] == ["m"]


@pytest.mark.parametrize("asks", [False, True], ids=["its certificate is unknown", "it wants ours"])
def test_an_app_that_cannot_be_trusted_or_does_not_trust_gets_nothing(
    here: Installation, keys: Path, *, asks: bool
) -> None:
    group, topic = here.name(f"untrusted-{asks}-group"), here.topic(f"untrusted-{asks}")
    here.produce(topic, b"m")
    ca = keys / ("app.pem" if asks else "ours.pem")
    with (
        app(lambda _one, _before: {}, tls=server(keys, asks=asks)) as one,
        pushing(here, group, topic, one.url, ca_file=ca) as push,
    ):
        wait_until(lambda: push.pause_ms >= 400, "it was probed")
    assert one.seen == []
    assert not here.committed(group, topic)
