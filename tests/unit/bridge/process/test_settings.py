"""Settings: where they come from, which one wins, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from reconsume.bridge.process.environment import read_environment
from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.delay_levels.errors import IllegalSetting


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text('bootstrap_servers = "file:1"\ntopic_prefix = "f."\n[scheduler]\nmax_batch_records = 7\n')
    environment = {"RECONSUME_BOOTSTRAP_SERVERS": "environment:1", "RECONSUME_TOPIC_PREFIX": "e."}
    settings = load_settings(Settings, file, environment, {"bootstrap_servers": "line:1", "topic_prefix": None})
    assert (settings.bootstrap_servers, settings.topic_prefix) == ("line:1", "e.")
    assert settings.scheduler.max_batch_records == 7


def test_librdkafkas_settings_come_from_all_three_places(tmp_path: Path) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text('[kafka]\n"security.protocol" = "SASL_SSL"\n"socket.keepalive.enable" = true\n')
    environment = {"RECONSUME_KAFKA_SASL_USERNAME": "app"}
    settings = load_settings(Settings, file, environment, {"kafka": {"client.rack": "a"}})
    assert settings.client_settings() == {
        "security.protocol": "SASL_SSL",
        "socket.keepalive.enable": "true",
        "sasl.username": "app",
        "client.rack": "a",
        "bootstrap.servers": "localhost:9092",
    }


@pytest.mark.parametrize(
    ("variable", "name", "value"),
    [
        ("LOG_LEVEL", "log_level", "3"),
        ("LOG_QUEUE", "log.queue", "false"),
        ("SASL_OAUTHBEARER_CLIENT_ID", "sasl.oauthbearer.client.id", "app"),
        ("ENABLE_SSL_CERTIFICATE_VERIFICATION", "enable.ssl.certificate.verification", "true"),
        ("SSL_CA_LOCATION", "ssl.ca.location", "probe"),
        ("_LOG_LEVEL", "log_level", "3"),
        ("ENABLED_EVENTS", "enabled_events", "0"),
    ],
)
def test_a_variable_is_the_name_that_librdkafka_knows(variable: str, name: str, value: str) -> None:
    settings = load_settings(Settings, environment={f"RECONSUME_KAFKA_{variable}": value}).client_settings()
    assert settings[name] == value
    Producer(settings).close()  # librdkafka refuses a name that it does not know


def test_the_mark_that_windows_puts_before_a_text_is_no_part_of_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_bytes(b"\xef\xbb\xbfhunter2\r\n")
    settings = load_settings(Settings, environment={"RECONSUME_KAFKA_SASL_PASSWORD_FILE": str(secret)})
    assert settings.client_settings()["sasl.password"] == "hunter2"


def test_a_secret_is_read_from_a_file_and_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("hunter2\n")
    settings = load_settings(Settings, environment={"RECONSUME_KAFKA_SASL_PASSWORD_FILE": str(secret)})
    assert settings.client_settings()["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(settings)
    with pytest.raises(IllegalSetting) as wrong:
        load_settings(
            Settings, environment={"RECONSUME_KAFKA_SASL_PASSWORD": "hunter2", "RECONSUME_SCHEDULER__DELIVERY": "x"}
        )
    assert "hunter2" not in str(wrong.value)


def test_a_section_of_comments_is_no_section_and_a_mark_of_utf8_no_text(tmp_path: Path) -> None:
    file = tmp_path / "reconsume.yaml"
    file.write_text("\ufeffscheduler:\n  # gather_ms: 10\ntopics: {retention_days: }\ntopic_prefix: a.\n")
    assert load_settings(Settings, file, {}) == Settings(topic_prefix="a.")


@pytest.mark.parametrize("servers", ["a", "a:1, b:2,", "SSL://a:1", "[::1]:9092", "::1", "kafka-0.kafka.ns.svc:65535"])
def test_addresses_that_librdkafka_knows_are_allowed(servers: str) -> None:
    assert Settings(bootstrap_servers=servers).client_settings()["bootstrap.servers"] == servers


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"RECONSUME_BOOTSTRP": "x"},
            r"setting bootstrp \(environment\): unknown setting; known here: .*bootstrap_servers",
        ),
        (
            {"RECONSUME_BOOTSTRAP_SERVERS": " "},
            r"setting bootstrap_servers \(environment\): the list is empty; write host:port",
        ),
        ({"RECONSUME_BOOTSTRAP_SERVERS": "a:1,http://b:2"}, "'http://b:2' must be host:port"),
        ({"RECONSUME_BOOTSTRAP_SERVERS": "a:99999"}, "'a:99999' must be host:port, with a port from 1 to 65535"),
        ({"RECONSUME_KAFKA_BOOTSTRAP_SERVERS": "a:1"}, "kafka has bootstrap.servers, .* set bootstrap_servers"),
        ({"RECONSUME_SCHEDULER__ID": "1"}, r"setting scheduler\.id .*known here: .*instance_id"),
        ({"RECONSUME_SCHEDULER__MAX_BATCH_RECORDS": "0"}, "greater than or equal to 1"),
        ({"RECONSUME_SCHEDULER__TRANSACTION_TIMEOUT_MS": "60000"}, "less than or equal to 15000"),
        (
            {"RECONSUME_SCHEDULER__SESSION_TIMEOUT_MS": "90000"},
            r"max_poll_interval_ms \(60000\) must be session_timeout_ms \(90000\) or more",
        ),
        ({"RECONSUME_MESSAGE_DELAY_LEVEL": "1s  5s"}, "put exactly one space between levels"),
        ({"RECONSUME_TOPIC_PREFIX": "a b"}, "illegal in Kafka"),
        ({"RECONSUME_ALLOWED_REAL_TOPICS": "ok ("}, "is not a regular expression"),
        ({"RECONSUME_ALLOWED_REAL_TOPICS": "a{99999999999999999999}"}, "is not a regular expression"),
        ({"RECONSUME_CONFIG_FILE": "/nowhere/at/all"}, "names a file that cannot be read"),
        ({"RECONSUME_TOPIC_PREFIX": "a.", "RECONSUME_TOPIC_PREFIX_FILE": "x"}, "are both set; keep one of them"),
    ],
)
def test_a_wrong_setting_is_told_what_where_and_what_is_allowed(environment: dict[str, str], said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        load_settings(Settings, environment=environment)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "is not TOML"),
        ('levels = "1s"', r"setting levels \(file .*unknown setting"),
        ("[topics]\nx=1", "topics.x"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text(text)
    with pytest.raises(IllegalSetting, match=said):
        load_settings(Settings, file, {})
    with pytest.raises(IllegalSetting, match="cannot be read"):
        load_settings(Settings, tmp_path / "missing.toml", {})


@pytest.mark.parametrize("section", ["kafka", "logging", "scheduler"])
def test_options_that_are_not_given_hide_no_mistake_below_them(tmp_path: Path, section: str) -> None:
    file = tmp_path / "reconsume.toml"
    file.write_text(f'{section} = "abc"')
    absent = {"kafka": {}, "logging": {"level": None}, "scheduler": {"instance_id": None}}
    with pytest.raises(IllegalSetting, match=rf"setting {section} \(file .*\): Input should be"):
        load_settings(Settings, file, {}, absent)
    with pytest.raises(IllegalSetting, match=rf"setting {section} \(environment\): Input should be"):
        load_settings(Settings, None, {f"RECONSUME_{section.upper()}": "abc"}, absent)


def test_the_variables_of_a_kubernetes_service_are_not_settings() -> None:
    services = {
        "RECONSUME_SERVICE_HOST": "10.0.0.1",
        "RECONSUME_SERVICE_PORT_HTTP": "80",
        "RECONSUME_PORT": "tcp://10.0.0.1:80",
        "RECONSUME_SCHEDULER_PORT_8081_TCP_ADDR": "10.0.0.1",
        "RECONSUME_SCHEDULER_SERVICE_HOST": "10.0.0.1",
    }
    assert read_environment(services) == {}
    assert load_settings(Settings, environment=services | {"RECONSUME_MANAGEMENT__PORT": "9"}).management.port == 9


def test_patterns_are_parted_by_spaces_in_the_environment() -> None:
    settings = load_settings(Settings, environment={"RECONSUME_ALLOWED_REAL_TOPICS": r"orders\..* payments"})
    assert settings.allowed_real_topics == [r"orders\..*", "payments"]


@pytest.mark.parametrize("name", ["private.key.file", "jwt.template.file"])
def test_a_path_of_librdkafka_is_not_taken_for_a_file_with_a_value(name: str, tmp_path: Path) -> None:
    variable = f"RECONSUME_KAFKA_SASL_OAUTHBEARER_ASSERTION_{name.upper().replace('.', '_')}"
    setting = f"sasl.oauthbearer.assertion.{name}"
    assert read_environment({variable: "/x/key"}) == {"kafka": {setting: "/x/key"}}
    file = tmp_path / "path"
    file.write_text("/y/key\n")
    assert read_environment({f"{variable}_FILE": str(file)}) == {"kafka": {setting: "/y/key"}}
    Producer({"bootstrap.servers": "127.0.0.1:9", setting: "/x/key"})
