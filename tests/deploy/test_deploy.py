"""What is shipped beside the package agrees with it: metrics of alerts, tools of the plug-in, versions."""

from __future__ import annotations

import asyncio
import configparser
import json
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

import lamina
from lamina.cli import main
from lamina.gateway import GatewaySettings, load_gateway_settings
from lamina.gateway.metrics import METRICS
from lamina.relay import limits

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "lamina-gateway"
PLUGIN = ROOT / "plugins" / "lamina"
NEEDED = {"postgres": {"host": "db.example"}}


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_alerts_and_the_rule_of_the_adapter_ask_only_for_what_the_gateway_measures() -> None:
    (group,) = read_yaml(DEPLOY / "prometheus/alerts.yaml")["groups"]
    (rule,) = read_yaml(DEPLOY / "prometheus/adapter.yaml")["rules"]["custom"]
    queries = [alert["expr"] for alert in group["rules"]] + [rule["seriesQuery"]]
    names = {name for query in queries for name in re.findall(r"\blamina_[a-z_]+", query)}
    assert {name.removesuffix("_bucket") for name in names} <= METRICS.keys()
    assert len({alert["alert"] for alert in group["rules"]}) == len(group["rules"])
    assert rule["name"]["as"] == read_yaml(CHART / "values.yaml")["autoscaling"]["addedLatency"]["metric"]


PROMTOOL = shutil.which("promtool")
SYSTEMD = shutil.which("systemd-analyze")
HELM = shutil.which("helm")


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_prometheus_accepts_the_alerts() -> None:
    subprocess.run([str(PROMTOOL), "check", "rules", DEPLOY / "prometheus/alerts.yaml"], check=True)


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = read_yaml(CHART / "Chart.yaml")
    assert chart["appVersion"] == lamina.__version__
    assert read_json(PLUGIN / ".claude-plugin/plugin.json")["version"] == lamina.__version__
    (package,) = read_json(ROOT / "server.json")["packages"]
    assert package["version"] == lamina.__version__


def test_uvx_finds_the_command_that_the_registry_names() -> None:
    """A client of the MCP registry runs `uvx ARGUMENTS lamina-context==VERSION mcp`.

    uvx looks for a command with the name of the package. After `--from` it would take the version for a part
    of the command's name.
    """
    (package,) = read_json(ROOT / "server.json")["packages"]
    commands = distribution(package["identifier"]).entry_points.select(group="console_scripts")
    assert package["identifier"] in commands.names
    assert [argument["name"] for argument in package["runtimeArguments"]] == ["--with"]


def check_values(**changes: Any) -> None:
    values = read_yaml(CHART / "values.yaml")
    jsonschema.validate(merge(values, changes), read_json(CHART / "values.schema.json"))


def merge(values: Any, changes: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(changes, dict):
        return changes
    return values | {name: merge(values.get(name), change) for name, change in changes.items()}


def test_the_chart_knows_its_values() -> None:
    check_values(**NEEDED)


@pytest.mark.parametrize(
    "changes",
    [
        {},  # without a database
        {**NEEDED, "replicaCount": 3},
        {**NEEDED, "replicas": 0},
        {**NEEDED, "image": {"digest": "sha256:abc"}},
        {**NEEDED, "gracePeriodSeconds": 10},
        {"postgres": {"host": "db.example", "sslmode": "maybe"}},
    ],
)
def test_the_chart_refuses_values_that_cannot_work(changes: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        check_values(**changes)


def test_the_grace_period_is_longer_than_the_gateway_takes_to_stop() -> None:
    stopping_seconds = limits.NOTICE_SECONDS + GatewaySettings().drain_seconds
    least = read_json(CHART / "values.schema.json")["properties"]["gracePeriodSeconds"]["minimum"]
    assert least > stopping_seconds
    unit = read_unit()
    assert float(unit["Service"]["TimeoutStopSec"]) > stopping_seconds


def test_the_settings_of_the_chart_are_settings_of_a_gateway(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(read_yaml(CHART / "values.yaml")["settings"], encoding="utf-8")
    assert load_gateway_settings(file, {}).policy.keep == "lowered"


@pytest.mark.parametrize(
    "values",
    [
        NEEDED,
        {**NEEDED, "hosts": ["gateway.example"], "monitoring": {"enabled": True, "labels": {"team": "a"}}},
        {
            **NEEDED,
            "autoscaling": {"enabled": True},
            "ingress": {"enabled": True, "host": "gateway.example", "tlsSecret": "tls"},
        },
        {**NEEDED, "image": {"digest": f"sha256:{'0' * 64}"}},
    ],
    ids=["plain", "monitored", "scaled", "pinned"],
)
def test_helm_lints_and_renders_the_chart(values: dict[str, Any], tmp_path: Path) -> None:
    rendered = render_chart(values, tmp_path)
    kinds = [document["kind"] for document in rendered]
    assert {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"} <= set(kinds)
    assert ("HorizontalPodAutoscaler" in kinds) == bool(values.get("autoscaling"))
    (deployment,) = [document for document in rendered if document["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "postgresql://lamina@db.example:5432/lamina?sslmode=verify-full" in container["args"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    (settings,) = [document for document in rendered if document["kind"] == "ConfigMap"]
    file = tmp_path / "gateway.toml"
    file.write_text(settings["data"]["gateway.toml"], encoding="utf-8")
    assert ("gateway.example" in load_gateway_settings(file, {}).hosts) == ("hosts" in values)


def render_chart(values: dict[str, Any], folder: Path) -> list[Any]:
    """The documents of the chart, by the command `helm` or by Helm as a library, whichever is installed."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    if HELM:
        subprocess.run([HELM, "lint", "--strict", CHART, "--values", file], check=True)
        command = [HELM, "template", "team", str(CHART), "--values", str(file)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    else:
        helm = pytest.importorskip("helm_sdkpy", reason="Helm is not installed")
        try:
            configuration = helm.Configuration(namespace="default")
        except helm.HelmLibraryNotFound:
            pytest.skip("Helm as a library is not there for this processor")
        install = helm.Install(configuration).run(
            "team", str(CHART), values=values, dry_run=True, client_only=True
        )
        text = asyncio.run(install)["manifest"]
    return [document for document in yaml.safe_load_all(text) if document]


def read_unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd/lamina-gateway.service", encoding="utf-8")
    return unit


@pytest.mark.skipif(SYSTEMD is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/lamina-gateway.service").read_text(encoding="utf-8")
    unit = tmp_path / "lamina-gateway.service"
    unit.write_text(text.replace("/opt/lamina/bin/lamina", "/bin/true"), encoding="utf-8")
    run = subprocess.run(
        [str(SYSTEMD), "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert unit.name not in run.stderr


def test_the_unit_starts_a_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    words = read_unit()["Service"]["ExecStart"].split(" ")
    assert main([words[1], "--help"]) == 0
    options = capsys.readouterr().out
    assert all(word in options for word in words[2:] if word.startswith("--"))


def test_the_plug_in_starts_the_server_and_names_tools_that_it_has() -> None:
    from lamina.mcp.tools import TOOLS  # noqa: PLC0415 - needs the extra

    server = read_json(PLUGIN / ".mcp.json")["mcpServers"]["lamina"]
    assert [server["command"], *server["args"]] == ["lamina", "mcp"]
    names = {tool.name for tool in TOOLS}
    pages = "".join(path.read_text(encoding="utf-8") for path in PLUGIN.rglob("*.md"))
    assert names <= set(re.findall(r"`([a-z]+)`", pages))


def test_the_market_place_names_the_plug_in() -> None:
    market = read_json(ROOT / ".claude-plugin/marketplace.json")
    (listed,) = market["plugins"]
    manifest = read_json(PLUGIN / ".claude-plugin/plugin.json")
    assert (ROOT / listed["source"]).resolve() == PLUGIN
    assert listed["description"] == manifest["description"]
    assert listed["name"] == manifest["name"]
    for page in (PLUGIN / "commands").glob("*.md"):
        _, head, body = page.read_text(encoding="utf-8").split("---\n", 2)
        assert yaml.safe_load(head)["description"]
        assert "$ARGUMENTS" in body
