"""`lamina serve --check` and `lamina log` and `lamina store`."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from lamina.cli import main
from lamina.core import Counter
from lamina.errors import BadInput
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings, serving
from lamina.relay.config import AccessToken, UpstreamSettings
from tests.gateway.growing import messages_request
from tests.gateway.running import proxied
from tests.gateway.test_conversations import SMALL, post


def test_conversations_are_listed_shown_pruned_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "gateway.db"

    async def converse() -> None:
        async with proxied(store, **SMALL) as (_, gateway, client):
            for steps in (0, 20):
                await post(client, gateway.url, messages_request(steps))
            await post(client, gateway.url, messages_request(0, task="Something else."))

    asyncio.run(converse())
    place = ["--store", str(store)]
    assert main(["log", *place, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["conversations"]
    assert sorted((row["requests"], row["cuts"]) for row in rows) == [(1, 0), (2, 1)]
    name = next(row["name"] for row in rows if row["cuts"])
    assert main(["log", name, *place]) == 0
    assert "cut 1: over the trigger" in capsys.readouterr().out
    assert main(["store", "prune", "--days", "1", "--yes", *place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": [], "size": 0}
    assert main(["store", "delete", name, *place]) == 2
    assert main(["store", "delete", name, "--yes", *place]) == 0
    assert main(["log", name, *place]) == 4
    assert main(["store", "prune", "--days", "0", *place]) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_that_is_taken_is_said_before_anything_else(
    workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"workers = {workers}\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--port", str(port), "--settings", str(file)]) == 2
    problem = f"lamina: serve: port {port} of 127.0.0.1 cannot be used: Address already in use; "
    assert capsys.readouterr().err == problem + "stop what uses it, or give another --port\n"


def test_a_store_that_cannot_be_opened_is_said_before_anything_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other_file = tmp_path / "picture.png"
    other_file.write_bytes(b"\x89PNG" * 300)
    for place, code, problem in (
        (["--store", str(tmp_path)], 2, "it is a folder; name a file in it"),
        (
            ["--store", str(other_file)],
            4,
            "file is not a database; give the path of a file that lamina wrote",
        ),
        (["--key-file", str(tmp_path / "key")], 2, "it is not there"),
    ):
        assert main(["serve", "--port", "0", *place]) == code
        [line] = capsys.readouterr().err.splitlines()
        assert problem in line


def test_settings_are_checked_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("port = 4949\npolicy.keep = 'some'\n")
    assert main(["serve", "--settings", str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file}:2" in err
    assert "use one of 'all', 'lowered', 'nothing'" in err
    for path, problem in (
        (tmp_path / "missing.toml", "there is no such file; check the path"),
        (tmp_path, "it is a folder; name a file in it"),
    ):
        assert main(["serve", "--settings", str(path)]) == 2
        assert capsys.readouterr().err == f"lamina: {path}: {problem}\n"
    file.write_bytes(b"\x89PNG\r\n")
    assert main(["serve", "--settings", str(file)]) == 2
    assert capsys.readouterr().err == f"lamina: {file}: it is not UTF-8 text; give settings as TOML\n"
    assert main(["serve", "--host", "0.0.0.0"]) == 2  # noqa: S104 - refused
    assert main(["serve", "--profile", "vllm"]) == 2
    assert main(["serve", "--upstream", "x", "--profile", "nobody"]) == 2


SERVER = UpstreamSettings(url="http://127.0.0.1:9", profile="openai")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[GatewaySettings]:
    """The settings with which `serve` has started a server; none is started."""
    settings: list[GatewaySettings] = []
    monkeypatch.setattr(serving, "run_server", settings.append)
    monkeypatch.delenv("LAMINA_TOKEN", raising=False)
    return settings


def test_settings_are_taken_as_they_are_or_read_from_their_file(
    started: list[GatewaySettings], tmp_path: Path
) -> None:
    own = GatewaySettings(port=0, upstreams={"only": SERVER}, policy=Policy(keep="nothing"))
    serving.serve(settings=own)
    assert started.pop() == own
    file = tmp_path / "gateway.toml"
    file.write_text('port = 0\n[policy]\nkeep = "nothing"\n[upstreams.mine]\nurl = "http://127.0.0.1:9"\n')
    with pytest.raises(BadInput, match="profile"):
        serving.serve(settings=file)
    file.write_text(file.read_text() + 'profile = "vllm"\n')
    for path in (file, str(file)):
        serving.serve(settings=path)
        assert list(started.pop().upstreams) == ["mine"]
    serving.serve(port=0, store=tmp_path / "gateway.db")
    assert set(started.pop().upstreams) == {"anthropic", "openai", "gemini", "ollama"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_policy_with_a_function_is_for_one_process_only(
    started: list[GatewaySettings], tmp_path: Path, workers: int
) -> None:
    policy = Policy(counter=Counter(name="characters", count=len))
    store = str(tmp_path / "gateway.db")
    settings = GatewaySettings(port=0, workers=workers, store=store, upstreams={"only": SERVER})
    if workers == 1:
        serving.serve(settings=settings, policy=policy)
        assert started.pop().policy.counter is policy.counter
        return
    with pytest.raises(BadInput, match="counter is not plain data"):
        serving.serve(settings=settings, policy=policy)
    assert not started


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"journal": "/"}, "cannot be written: Is a directory; name a file"),
        ({"journal": "a\0b"}, "cannot be written: .*embedded null"),
        ({"host": "*", "tokens": (AccessToken(sha256="a" * 64),)}, "is not an address; give an address"),
    ],
)
def test_what_cannot_be_opened_is_refused_at_the_start(
    setting: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    settings = GatewaySettings(store=str(tmp_path / "gateway.db"), port=0, **setting)
    with pytest.raises(BadInput, match=problem):
        serving.check_start(settings, {})
