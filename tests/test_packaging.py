"""What is handed out besides the package: completion in real shells, the man page, the containers."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.cli import COMMANDS
from lamina.gateway import GatewaySettings
from tools.cli_help import write_man_page

ROOT = Path(__file__).resolve().parent.parent


def find_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_every_command_is_in_the_man_page() -> None:
    page = write_man_page().replace("\\-", "-")
    for name in COMMANDS:
        assert f"\\fBlamina {name}\\fR" in page


def test_the_man_page_has_no_errors(tmp_path: Path) -> None:
    page = tmp_path / "lamina.1"
    page.write_text(write_man_page())
    done = subprocess.run(
        [find_program("man"), "--warnings", "-E", "UTF-8", "-l", page],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", "MANPAGER": "cat"},
    )  # fmt: skip
    assert done.stderr == ""
    assert "lamina cost " in done.stdout


def test_the_container_runs_as_a_user_of_its_own_with_settings_that_hold() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
    copied = [line.split() for line in lines if line.startswith("COPY ") and "--from" not in line]
    sources = [source for words in copied for source in words[1:-1]]
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(sources)
    settings = tomllib.loads((ROOT / "deploy/gateway.toml").read_text())
    assert msgspec.convert(settings, GatewaySettings).is_public


def test_the_container_has_one_base_image_that_a_digest_can_be_given_for() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    assert {line.split()[1] for line in lines if line.startswith("FROM ")} == {"${PYTHON_IMAGE}"}
    (argument,) = [line for line in lines if line.startswith("ARG ")]
    image = argument.partition("=")[2]
    assert image.partition(":")[2] not in ("", "latest")
    assert f"${{PYTHON_IMAGE:-{image}}}" in (ROOT / "deploy/compose.yaml").read_text()


def test_every_package_of_the_container_is_pinned_by_hash() -> None:
    """An install without hashes takes only the wheel that was built, and no package index."""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", dockerfile)
    assert len(installs) == 3
    unpinned = [install for install in installs if "--require-hashes" not in install]
    assert all("--no-index --no-deps" in install for install in unpinned)
    assert len(unpinned) == 1
    pinned = read_pins("requirements/image.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in ("run", "postgres", "encryption", "otel")]
    wanted = [re.split(r"[\[>=<;]", text)[0] for each in (project["dependencies"], *extras) for text in each]
    assert {name.lower() for name in wanted} <= pinned.keys()
    assert all(text.count("--hash=sha256:") >= 1 for text in pinned.values())
    # What the container has is what the tests ran with.
    assert pinned.keys() - read_pins("requirements/dev.txt").keys() == set()


def read_pins(path: str) -> dict[str, str]:
    """The pinned packages of a file, and the lines of each."""
    blocks = re.split(r"(?m)^(?=[a-z])", (ROOT / path).read_text())[1:]
    return {block.partition("==")[0]: block for block in blocks}


def test_the_image_is_built_from_digests(tmp_path: Path) -> None:
    """`make image` with a Docker that only writes down what it is asked."""
    digest = f"sha256:{'0' * 64}"
    docker = tmp_path / "docker"
    docker.write_text(f"""#!/bin/sh
echo "$@" >> "{tmp_path}/asked"
[ "$1" = build ] || echo {digest}
""")
    docker.chmod(0o755)
    shutil.copytree(ROOT / "deploy", tmp_path / "tree/deploy")
    (tmp_path / "tree/tools").mkdir()
    shutil.copy(ROOT / "tools/image.sh", tmp_path / "tree/tools")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = str(tmp_path / "tree/tools/image.sh")
    subprocess.run(["/bin/sh", script, "gateway:test"], env=environment, check=True, capture_output=True)
    build = (tmp_path / "asked").read_text().splitlines()[-1]
    assert f"PYTHON_IMAGE=python:3.13-slim-bookworm@{digest}" in build
    pins = (tmp_path / "tree/deploy/.env").read_text().splitlines()
    assert pins[0] == "LAMINA_IMAGE=gateway:test"
    assert all(pin.endswith(f"@{digest}") for pin in pins[1:])
    assert [pin.partition("=")[0] for pin in pins[1:]] == ["PYTHON_IMAGE", "POSTGRES_IMAGE", "HAPROXY_IMAGE"]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint") or str(Path(sys.executable).parent / "hadolint")
    if not Path(hadolint).exists():
        pytest.skip("hadolint is not installed; make release-check runs it")
    assert run(hadolint, str(ROOT / "deploy/Dockerfile")) == ""


def test_the_services_are_pinned_healthy_and_without_secrets() -> None:
    yaml: Any = pytest.importorskip("yaml")
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    services = compose["services"]
    for service in services.values():
        default = re.fullmatch(r"\$\{[A-Z]+_IMAGE:-([a-z-]+):([a-z0-9.-]+)\}", service["image"])
        assert default is not None
        assert default[2] != "latest"
        environment = service.get("environment", {})
        assert not any("PASSWORD" in name and "FILE" not in name for name in environment)
    assert services["gateway"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert "healthcheck" in services["postgres"]
    assert set(services["gateway"]["secrets"]) <= compose["secrets"].keys()
    assert services["balancer"]["ports"] == ["127.0.0.1:4949:4949"]


def test_any_number_of_gateways_can_run() -> None:
    """A port of the host or a name of its own would allow one container only."""
    yaml: Any = pytest.importorskip("yaml")
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    assert not {"ports", "container_name", "hostname"} & services["gateway"].keys()
    assert services["gateway"]["deploy"]["replicas"] >= 2
    balancer = (ROOT / "deploy/balancer.cfg").read_text()
    (places,) = re.findall(r"server-template gateway (\d+) gateway:4949", balancer)
    assert int(places) >= services["gateway"]["deploy"]["replicas"]
    assert "uri /readyz" in balancer
    settings = tomllib.loads((ROOT / "deploy/gateway.toml").read_text())
    assert "hdr Host gateway" in balancer
    assert "gateway" in settings["hosts"]


def test_the_environment_of_an_adapter_has_its_extra_and_what_tests_need() -> None:
    """What an adapter itself needs belongs to its extra: else its tests pass where users cannot run it."""
    for_tests = {"pytest", "pytest-asyncio", "langgraph-checkpoint-sqlite"}
    clients = {"openai", "anthropic", "langchain-openai", "langchain-anthropic"}
    clients |= {"litellm", "pydantic-ai-slim"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lists = sorted((ROOT / "requirements/adapters").glob("*.in"))
    assert len(lists) == 4
    for path in lists:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert {re.split(r"[\[>= ]", line)[0] for line in lines} <= for_tests | clients
        pins = read_pins(f"requirements/adapters/{path.stem}.txt")
        assert {re.split(r"[\[>=<;]", text)[0] for text in extras[path.stem]} <= pins.keys()
