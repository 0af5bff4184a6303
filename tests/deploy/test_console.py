"""The console of the chart: how it is started, reached and asked, and that it has a login of its own where told so."""

from __future__ import annotations

from typing import Any, Final

import pytest
from typer.main import get_command

from reconsume.bridge.process.ports import CONSOLE_MANAGEMENT, SCHEDULER_MANAGEMENT, SIDECAR_MANAGEMENT
from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.cli.main import app
from reconsume.console.settings import ConsoleProcessSettings
from tests.deploy.charts import find, helm_template, render
from tests.deploy.test_image import ours

ENABLED: Final = ("console.enabled=true", "console.auth.existingSecret=token")


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = pod(objects)["containers"]
    assert isinstance(found, dict)
    return found


def pod(objects: list[dict[str, Any]], kind: str = "Deployment") -> dict[str, Any]:
    found = find(objects, kind)["spec"]["template"]["spec"]
    assert isinstance(found, dict)
    return found


def options(words: list[str]) -> dict[str, Any]:
    """What the command line makes of them; runs nothing."""
    command = getattr(get_command(app), "commands", {})[words[0]]
    context = command.context_class(command, info_name=words[0])
    found, left, _ = command.make_parser(context).parse_args(list(words[1:]))
    assert left == []
    return dict(found)


def test_it_is_not_there_unless_it_is_asked_for() -> None:
    assert [one for one in render("minimal") if "console" in one["metadata"]["name"]] == []


@pytest.mark.parametrize(
    ("values", "read_only", "hide_values"),
    [((), False, False), (("console.readOnly=true",), True, False), (("console.hideValues=true",), False, True)],
)
def test_its_words_are_those_of_the_command(values: tuple[str, ...], read_only: bool, hide_values: bool) -> None:
    found = options(container(render("minimal", *ENABLED, *values))["args"])
    assert (found["listen"], found["management"]) == ("[::]:15083", "[::]:15084")
    assert str(found["token_file"]) == "/run/reconsume/console/token"
    assert (bool(found.get("read_only")), bool(found.get("hide_values"))) == (read_only, hide_values)


def test_its_temporary_files_lie_where_it_may_write() -> None:
    found = container(render("minimal", *ENABLED))
    [folder] = [one["value"] for one in found["env"] if one["name"] == "SQLITE_TMPDIR"]
    assert folder in {one["mountPath"] for one in found["volumeMounts"] if not one.get("readOnly")}


@pytest.mark.parametrize("name", ours())
def test_the_words_of_compose_are_those_of_commands(name: str) -> None:
    words = ours()[name]["command"]
    if name == "topics":
        assert words == ["topics", "apply", "--yes"]
    else:
        port = {"scheduler": SCHEDULER_MANAGEMENT, "sidecar": SIDECAR_MANAGEMENT, "console": CONSOLE_MANAGEMENT}[
            words[0]
        ]
        assert options(words)["management"] == f"0.0.0.0:{port}"


def test_its_token_is_a_file_of_any_key() -> None:
    objects = render("console")
    mounts = {one["name"]: one["mountPath"] for one in container(objects)["volumeMounts"]}
    (volume,) = [one for one in pod(objects)["volumes"] if one["name"] == "console-token"]
    assert mounts["console-token"] == "/run/reconsume/console"
    assert volume["secret"] == {"secretName": "console-token", "items": [{"key": "word", "path": "token"}]}


def secrets(objects: list[dict[str, Any]], kind: str) -> set[str]:
    return {one["secret"]["secretName"] for one in pod(objects, kind)["volumes"] if "secret" in one}


def user(objects: list[dict[str, Any]], kind: str) -> str:
    (found,) = [one for one in pod(objects, kind)["containers"][0]["env"] if "USERNAME" in one["name"]]
    name: str = load_settings(Settings, None, {found["name"]: found["value"]}).client_settings()["sasl.username"]
    return name


def test_it_logs_in_as_itself_and_the_workers_as_themselves() -> None:
    objects = render("console")
    assert secrets(objects, "Deployment") == {"console-user", "console-ca", "console-token"}
    assert secrets(objects, "StatefulSet") == {"scheduler-user", "cluster-ca"}
    assert (user(objects, "Deployment"), user(objects, "StatefulSet")) == ("console", "scheduler")


def test_it_logs_in_as_the_workers_do_unless_it_is_told_another_login() -> None:
    objects = render("sasl", *ENABLED)
    assert secrets(objects, "Deployment") == {"kafka-user", "cluster-ca", "token"}
    env = {one["name"]: one.get("value") for one in container(objects)["env"] if one["name"] != "SQLITE_TMPDIR"}
    assert env == {
        one["name"]: one.get("value")
        for one in pod(objects, "StatefulSet")["containers"][0]["env"]
        if not one["name"].startswith("POD_")
    }


def test_a_login_of_its_own_may_have_its_user_name_in_the_secret() -> None:
    objects = render("console", "console.kafka.sasl.username=")
    env = {one["name"]: one.get("value") for one in container(objects)["env"]}
    assert env["RECONSUME_KAFKA_SASL_USERNAME_FILE"] == "/run/reconsume/sasl/username"
    assert "RECONSUME_KAFKA_SASL_USERNAME" not in env


def test_it_reads_the_settings_that_somebody_else_writes() -> None:
    objects = render("own-settings", *ENABLED)
    assert {"name": "settings", "configMap": {"name": "my-settings"}} in pod(objects)["volumes"]
    env = {one["name"]: one.get("value") for one in container(objects)["env"]}
    assert env["RECONSUME_CONFIG"] == "/etc/reconsume/settings.toml"


def test_its_probes_ask_the_management_port() -> None:
    made = container(render("minimal", *ENABLED, "console.managementPort=9000"))
    assert {one["name"]: one["containerPort"] for one in made["ports"]} == {"http": 15083, "management": 9000}
    assert "--management=[::]:9000" in made["args"]
    asked = {name: made[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {one["port"] for one in asked.values()} == {"management"}
    assert [one["path"] for one in asked.values()] == ["/livez", "/livez", "/readyz"]


def test_whoever_looks_for_it_finds_it() -> None:
    objects = render("console", "console.service.port=80", "console.port=9090")
    labels = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    service = find(objects, "Service", "-console")
    chosen = [
        find(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        find(objects, "NetworkPolicy", "-console")["spec"]["podSelector"]["matchLabels"],
    ]
    assert [one for one in chosen if not one.items() <= labels] == []
    monitor = find(objects, "ServiceMonitor", "-console")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    ports = {one["name"]: (one["port"], one["targetPort"]) for one in service["spec"]["ports"]}
    assert ports == {"http": (80, "http"), "management": (15084, "management")}
    assert monitor["endpoints"][0]["port"] in ports
    name = service["metadata"]["name"]
    backend = find(objects, "Ingress")["spec"]["rules"][0]["http"]["paths"][0]["backend"]
    assert backend == {"service": {"name": name, "port": {"name": "http"}}}
    assert find(objects, "HTTPRoute")["spec"]["rules"] == [{"backendRefs": [{"name": name, "port": 80}]}]
    let_in = find(objects, "NetworkPolicy", "-console")["spec"]["ingress"]
    assert [one["ports"] for one in let_in] == [[{"port": 9090}], [{"port": 15084}]]


def test_the_workers_service_monitor_does_not_ask_it() -> None:
    objects = render("console")
    chosen = find(objects, "ServiceMonitor", "-scheduler")["spec"]["selector"]["matchLabels"].items()
    assert not chosen <= find(objects, "Service", "-console")["metadata"]["labels"].items()


def test_notes_tell_how_to_open_it() -> None:
    notes = helm_template("console", notes=True).stdout.partition("NOTES:")[2]
    assert "kubectl -n ns port-forward service/rel-reconsume-console 15083:15083" in notes
    command = """kubectl -n ns get secret console-token -o go-template='{{index .data "word" | base64decode}}'"""
    assert command in notes
    assert "https://console.example.com" in notes
    assert "token crosses the network in clear" not in notes


def test_notes_warn_of_a_token_in_clear_and_of_a_login_without_rights() -> None:
    values = ("console.ingress.enabled=true", "console.ingress.host=a.example.com", "console.ingress.tls.enabled=false")
    notes = helm_template("strimzi", *ENABLED, *values, notes=True).stdout.partition("NOTES:")[2]
    assert "http://a.example.com" in notes
    assert "token crosses the network in clear" in notes
    assert "name the Secret of rel-reconsume-console in console.kafka" in notes


def test_people_sign_in_by_what_the_values_say() -> None:
    objects = render("console-people")
    (volume,) = [one for one in pod(objects)["volumes"] if one["name"] == "console-token"]
    assert {one["key"]: one["path"] for one in volume["secret"]["items"]} == {
        "people": "tokens",
        "oidc": "client-secret",
        "session": "session-key",
    }
    assert not [one for one in container(objects)["args"] if "token" in one]
    env = {one["name"]: one.get("value") for one in container(objects)["env"] if "CONSOLE" in one["name"]}
    files = {name: env.pop(name) for name in [*env] if name.endswith("_FILE")}
    assert files == {
        "RECONSUME_CONSOLE__TOKENS_FILE": "/run/reconsume/console/tokens",
        "RECONSUME_CONSOLE__SESSION_KEY_FILE": "/run/reconsume/console/session-key",
    }
    console = load_settings(ConsoleProcessSettings, None, env).console
    assert console.oidc is not None
    assert (console.oidc.issuer, str(console.oidc.client_secret_file)) == (
        "https://sso.example.com",
        "/run/reconsume/console/client-secret",
    )
    assert (console.access[0].teams, console.hide_values_from_viewers) == (["sre"], False)
