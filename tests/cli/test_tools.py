"""`lamina tools advise`: the table, the JSON, and the lines for a settings file that the gateway reads."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.fitting.policy import load_policy
from lamina.sessions import Session
from tests.cli.running import run
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub


def definition(name: str, words: int = 20) -> dict[str, Any]:
    function = {"name": name, "description": "word " * words, "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two sessions, each of which calls one of its two tools."""
    lines = []
    for number in (1, 2):
        call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": f"Look at {number}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
        ]
        request = {
            "model": "gpt-5.6",
            "tools": [definition("never", 300), definition("read")],
            "messages": messages,
        }
        answer = {"role": "assistant", "content": "Done."}
        lines.append(json.dumps({"request": request, "response": {"choices": [{"message": answer}]}}))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_it_ends_with_lines_that_a_settings_file_takes(log: Path) -> None:
    done = run("tools", "advise", log)
    assert done.code == 0, done.err
    assert done.out.startswith("2 sessions, 2 requests, 2 tools\n")
    settings = tomllib.loads(done.out[done.out.index("[policy]") :])
    policy = load_policy(settings["policy"])
    assert policy.load_tools == ("read",)
    lines = done.out.splitlines()
    names = [line.split()[0] for line in lines[lines.index("load, in this order") :] if line.startswith("  ")]
    assert names == ["read", "never"]


def test_as_json_it_has_the_same_figures(log: Path) -> None:
    done = run("tools", "advise", log, "--json")
    figures = json.loads(done.out)
    assert (figures["load"], figures["defer"]) == (["read"], ["never"])
    assert figures["deferred_price"] < figures["loaded_price"]
    assert (
        f"{figures['deferred_price']:,} instead of {figures['loaded_price']:,}"
        in run("tools", "advise", log).out
    )


def test_if_nothing_is_worth_deferring_it_says_so(log: Path) -> None:
    text = log.read_text(encoding="utf-8").replace('"name": "never"', '"name": "read"')
    log.write_text(text, encoding="utf-8")
    done = run("tools", "advise", log)
    assert "[policy]" not in done.out
    assert done.out.splitlines()[-1] == "nothing to defer: every tool costs less if it is loaded"


def test_sessions_of_a_store_are_read_too(tmp_path: Path) -> None:
    store = tmp_path / "chats.db"

    async def talk() -> None:
        async with Session.open(store, "support", model="gpt-5.6") as session:
            await session.ask("Hello")
            await session.record("Hi.")

    anyio.run(talk)
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"tools": [definition("never")]}), encoding="utf-8")
    done = run("tools", "advise", "--store", store, "--request", request, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["defer"] == ["never"]


def test_what_a_gateway_recorded_is_read_too(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    request = {
        "model": "gpt-5.6",
        "tools": [definition("never", 300), definition("other", 200)],
        "messages": [{"role": "user", "content": "Hello"}],
    }

    async def ask() -> None:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, keep="all")) as gateway,
            open_client() as client,
            client.post(f"{gateway.url}/v1/chat/completions", json=request) as answer,
        ):
            await answer.read()

    anyio.run(ask)
    done = run("tools", "advise", "--store", store, "--json")
    assert done.code == 0, done.err
    figures = json.loads(done.out)
    assert (figures["sessions"], figures["requests"], figures["defer"]) == (1, 1, ["never", "other"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tools", "advise"), "there are no sessions to read"),
        (("tools", "list"), "invalid choice: 'list'"),
        (("tools", "advise", "{folder}/empty.jsonl"), "it holds no session"),
        (("tools", "advise", "{folder}/plain.jsonl"), "have no definitions of tools"),
        (("tools", "advise", "{folder}/plain.jsonl", "--request", "{folder}/plain.jsonl"), "no definitions"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    plain = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    (tmp_path / "plain.jsonl").write_text(json.dumps(plain) + "\n", encoding="utf-8")
    done = run(*(argument.format(folder=tmp_path) for argument in arguments))
    assert done.code == 2
    assert words in done.err
