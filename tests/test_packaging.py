"""What is handed out besides the package: completion in real shells, the man page, the containers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina.cli import COMMANDS
from lamina.cli.completion import SHELLS, write_completion
from lamina.gateway.config import GatewaySettings
from tools.man import write_page

ROOT = Path(__file__).resolve().parent.parent


def find_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("lamina", "repl"), "replay"),
        (("lamina", "replay", "--engine", ""), "local dask ray"),
        (("lamina", "completion", "f"), "fish"),
        (("lamina", "serve", "--set"), "--settings"),
    ],
)
def test_bash_completes(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    script = tmp_path / "lamina"
    script.write_text(write_completion("bash"))
    typed = " ".join(f"'{word}'" for word in words)
    program = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _lamina; echo ${{COMPREPLY[@]}}"
    )
    assert run(find_program("bash"), "--norc", "-c", program) == f"{expected}\n"


def test_fish_completes(tmp_path: Path) -> None:
    script = tmp_path / "lamina.fish"
    script.write_text(write_completion("fish"))
    program = f"source {script}; complete -C 'lamina repl'; complete -C 'lamina replay --engine '"
    lines = run(find_program("fish"), "--no-config", "-c", program).splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["replay", "dask", "local", "ray"]


def test_zsh_completes(tmp_path: Path) -> None:
    pexpect: Any = pytest.importorskip("pexpect")
    (tmp_path / "_lamina").write_text(write_completion("zsh"))
    shell = pexpect.spawn(find_program("zsh"), ["-f"], encoding="utf-8", timeout=30, dimensions=(40, 120))
    shell.sendline(
        f"PS1='ready> '; fpath=({tmp_path} $fpath); autoload -U compinit; compinit -u -D; echo o''k"
    )
    shell.expect("ok\r\n")
    shell.send("lamina repl\t")
    shell.expect("lamina replay")
    shell.send("--engine d\t")
    shell.expect("--engine dask")
    shell.close(force=True)


def test_every_command_is_completed_and_in_the_man_page() -> None:
    page = write_page().replace("\\-", "-")
    for name in COMMANDS:
        assert f"\\fBlamina {name}\\fR" in page
        assert all(name in write_completion(shell) for shell in SHELLS)


def test_the_man_page_has_no_errors(tmp_path: Path) -> None:
    page = tmp_path / "lamina.1"
    page.write_text(write_page())
    done = subprocess.run(
        [find_program("man"), "--warnings", "-E", "UTF-8", "-l", page],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", "MANPAGER": "cat"},
    )  # fmt: skip
    assert done.stderr == ""
    assert "lamina replay PATH... [--window" in done.stdout


def test_the_container_runs_as_a_user_of_its_own_with_settings_that_hold() -> None:
    lines = (ROOT / "deploy/Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001"]
    images = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(":" in image and not image.endswith(":latest") for image in images)
    copied = [line.split() for line in lines if line.startswith("COPY ") and "--from" not in line]
    assert all((ROOT / source).exists() for words in copied for source in words[1:-1])
    settings = tomllib.loads((ROOT / "deploy/gateway.toml").read_text())
    assert msgspec.convert(settings, GatewaySettings).is_public


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
        image, _, version = service["image"].partition(":")
        assert image
        assert version not in ("", "latest")
        assert not any("PASSWORD" in name and "FILE" not in name for name in service["environment"])
    assert services["gateway"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert "healthcheck" in services["postgres"]
    assert set(services["gateway"]["secrets"]) <= compose["secrets"].keys()
    assert services["gateway"]["ports"] == ["127.0.0.1:4949:4949"]
