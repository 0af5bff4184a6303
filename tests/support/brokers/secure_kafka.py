"""A local Kafka with TLS, SASL/SCRAM and rights, for tests of who may do what."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from reconsume.cli.broker.ports import free_port
from reconsume.operations.rights import Right
from tests.support.brokers.kafka import PatientKafka
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["SecureKafka", "secure_kafka"]

_KEY_DAYS = "2"


class SecureKafka(PatientKafka):
    """Two listeners: SASL_SSL for users, who may nothing but what they are granted, and PLAINTEXT for the operator."""

    def __init__(self) -> None:
        super().__init__(
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            },
        )
        self._secure_port = free_port()
        self._operator: AdminClient | None = None

    @property
    def secure_bootstrap_servers(self) -> str:
        """`127.0.0.1:<port>` of the listener for users."""
        return f"127.0.0.1:{self._secure_port}"

    @property
    def certificate(self) -> Path:
        """What users trust."""
        return self._folder / "certificate.pem"

    def user(self, name: str, password: str) -> dict[str, str]:
        """Make a user or change his password; gives his librdkafka settings."""
        upsertion = UserScramCredentialUpsertion(
            name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password.encode()
        )
        admin = self.operator()
        admin.alter_user_scram_credentials([upsertion])[name].result(PATIENCE)

        def is_known() -> bool:
            """The controller has answered; the broker hears of it a moment later."""
            try:
                asked = cast("dict[str, Future[Any]]", admin.describe_user_scram_credentials([name]))
                return bool(asked[name].result(PATIENCE))
            except KafkaException:
                return False

        wait_until(is_known, f"the broker knows user {name}")
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password,
        }

    def operator(self) -> AdminClient:
        """An admin client that may everything."""
        if self._operator is None:
            self._operator = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        return self._operator

    def grant(self, user: str, rights: list[Right]) -> None:
        """Give a user exactly these rights, in place of those that he had."""
        admin = self.operator()
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,  # type: ignore[arg-type]  # any
            ResourcePatternType.ANY,
            f"User:{user}",
            None,  # type: ignore[arg-type]
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin.delete_acls([everything])[everything].result(PATIENCE)
        # One binding may stand for two reasons.
        bindings = list({binding for right in rights for binding in _bindings(user, right)})
        if bindings:
            for future in admin.create_acls(bindings).values():
                future.result(PATIENCE)
        wait_until(
            lambda: set(admin.describe_acls(everything).result(PATIENCE)) == set(bindings),
            f"the broker knows the rights of {user}",
        )

    def _write_settings(self) -> None:
        super()._write_settings()
        self._make_certificate()
        broker, controller = self._ports
        secure = f"SASL_SSL://127.0.0.1:{self._secure_port}"
        lines = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},{secure},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker},{secure}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._folder / "keystore.pem"),
        }
        # The last line for a name counts.
        with (self._folder / "server.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in lines.items())

    def _make_certificate(self) -> None:
        if self.certificate.exists():
            return
        key = self._folder / "key.pem"
        openssl = shutil.which("openssl")
        assert openssl is not None, "openssl is needed to make a certificate"
        subprocess.run(
            [
                *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", _KEY_DAYS, "-subj", "/CN=kafka"),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)),
            ],
            check=True,
            capture_output=True,
        )
        (self._folder / "keystore.pem").write_text(key.read_text() + self.certificate.read_text())


def _bindings(user: str, right: Right) -> list[AclBinding]:
    kinds: dict[str, Any] = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional-id": ResourceType.TRANSACTIONAL_ID,
        "cluster": ResourceType.BROKER,
    }
    pattern = ResourcePatternType.PREFIXED if right.prefixed else ResourcePatternType.LITERAL
    return [
        AclBinding(
            kinds[right.resource],
            right.name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[_upper_snake(operation)],
            AclPermissionType.ALLOW,
        )
        for operation in right.operations
    ]


def _upper_snake(operation: str) -> str:
    return re.sub("(?<=[a-z])(?=[A-Z])", "_", operation).upper()


@contextmanager
def secure_kafka() -> Iterator[SecureKafka]:
    """One that is stopped, whatever happens."""
    kafka = SecureKafka()
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
