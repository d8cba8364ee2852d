"""What a client chooses is printed by commands, and nothing of it is obeyed by a terminal."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lamina.cli import main
from lamina.cli.output import tell
from lamina.core.text.characters import is_printable
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

CLIPBOARD = "\x1b]52;c;cHduZWQ=\x07"
HOSTILE = f"{CLIPBOARD}\x9b2J\u202e\u2066\u0007evil\r\nlamina: cost: $0"


class Terminal(io.TextIOWrapper):
    """An output that says it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8")

    def isatty(self) -> bool:
        return True

    def written(self) -> str:
        self.flush()
        buffer: Any = self.buffer
        return str(buffer.getvalue().decode())


def run_at_terminal(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What a command prints on a terminal without colours, results and remarks together."""
    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        main(list(words))
    return screen.written()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with a conversation whose every name and text is hostile."""
    path = tmp_path / "gateway.db"
    request = messages_request(1, task=HOSTILE, model=f"claude-sonnet-5{HOSTILE}")
    request["metadata"] = {"user_id": json.dumps({"session_id": HOSTILE})}

    async def converse() -> None:
        settings_file = path.with_name("gateway.db.requests.jsonl")
        async with run_stub() as stub:
            settings = settings_for(stub, path, keep="all")
            async with run_gateway(settings, journal_path=settings_file) as gateway, open_client() as client:
                body = json.dumps(request).encode()
                headers = {"content-type": "application/json", "x-api-key": "k"}
                async with client.post(f"{gateway.url}/v1/messages", data=body, headers=headers) as answer:
                    assert answer.status == 200
                assert [line for line in gateway.log.getvalue().splitlines() if not is_printable(line)] == []

    asyncio.run(converse())
    return str(path)


COMMANDS = [
    ("log",),
    ("log", "--json"),
    ("log", "NAME"),
    ("log", "NAME", "--json"),
    ("log", HOSTILE),
    ("store", "summary"),
    ("store", "verify"),
    ("store", "export", "NAME"),
    ("store", "export", "NAME", "--format", "json"),
    ("store", "export", "NAME", "--format", "request"),
    ("store", "delete", "NAME"),
    ("recall", HOSTILE, "--conversation", "NAME"),
    ("log", "-f", "--once"),
    ("log", "-f", "--once", "--json"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_no_command_prints_what_a_terminal_obeys(
    words: tuple[str, ...], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.loads(run_at_terminal(monkeypatch, "log", "--json", "--store", store))
    [conversation] = listed["conversations"]
    words = tuple(conversation["name"] if word == "NAME" else word for word in words)
    printed = run_at_terminal(monkeypatch, *words, "--store", store)
    assert printed
    assert [line for line in printed.split("\n") if not is_printable(line)] == []
    if "export" not in words:  # a page has the lines of its messages
        assert "lamina: cost: $0" not in printed.split("\n")


def test_an_export_into_a_pipe_has_every_byte(store: str, capfd: pytest.CaptureFixture[str]) -> None:
    main(["log", "--json", "--store", store])
    [conversation] = json.loads(capfd.readouterr().out)["conversations"]
    main(["store", "export", conversation["name"], "--store", store])
    assert CLIPBOARD in capfd.readouterr().out


def test_a_remark_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"lamina: {HOSTILE}")
    assert capsys.readouterr().err == "lamina: ]52;c;cHduZWQ=2Jevil lamina: cost: $0\n"
