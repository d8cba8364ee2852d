"""`lamina log -f`: the file that a gateway writes beside its store, and how it is followed."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lamina.cli.tail import JournalReader
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.relay import journal as journal_module
from lamina.relay.journal import find_journal, place_journal
from tests.cli.running import make_interruptible, run
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_conversations import SMALL, post
from tests.gateway.upstream_stub import run_stub


def test_the_requests_of_a_past_gateway_are_printed_with_cuts_and_money(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    lines = tmp_path / "gateway.db.requests.jsonl"

    async def converse() -> None:
        async with run_stub() as stub:
            settings = settings_for(stub, store, **SMALL)
            assert find_journal(settings, {}) == lines
            async with run_gateway(settings, journal_path=lines) as gateway, open_client() as client:
                for steps in (0, 3, 20, 21):
                    await post(client, gateway.url, messages_request(steps, model="claude-sonnet-5"))

    asyncio.run(converse())
    assert stat.S_IMODE(lines.stat().st_mode) == 0o600
    text = lines.read_text()
    assert "function_1" not in text  # no content
    printed = run("log", "-f", "--store", store, "--once")
    assert printed.code == 0
    day, talk, *requests = printed.out.splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", day)
    assert "claude-sonnet-5" in talk
    assert len(requests) == 5
    assert "cut 1, over the trigger: " in requests[2]
    assert "$" in requests[-1]
    assert [line for line in printed.out.splitlines() if len(line) > 80] == []
    assert "lamina: 4 calls in 1 conversation, 1 cut; " in printed.err
    assert "lamina: window of claude-sonnet-5: " in printed.err
    assert "as it was set; the largest request had" in printed.err
    last = run("log", "-f", "--store", store, "--once", "-n", "1")
    assert len(last.out.splitlines()) == 3
    assert "nothing was cut" not in last.err
    events = [json.loads(line) for line in run("log", "-f", lines, "--once", "--json").out.splitlines()]
    assert [event["event"] for event in events] == ["answered", "answered", "cut", "answered", "answered"]


def test_hostile_and_foreign_lines_are_harmless() -> None:
    event = {
        "at": 1.0,
        "event": "answered",
        "conversation": "\x1b]0;owned\x07",
        "model": "m\x1b[2J",
        "input": 5,
    }
    miss = {
        "at": 1.0,
        "event": "miss",
        "cause": "tools",
        "place": "tools[3]",
        "lost": 900,
        "advice": "sort them",
    }
    newer = {"at": "soon", "event": "from the future", "fact": 1}
    foreign = [
        b"INFO: started\n",
        b"[1]\n",
        b'{"event": 5}\n',
        b"[" * 5000 + b"\n",
        b'{"event": "answered"}\n',
    ]
    sent = b"".join([json.dumps(event).encode() + b"\n", json.dumps(miss).encode() + b"\n", *foreign])
    printed = run("log", "-f", "-", given=sent + json.dumps(newer).encode() + b"\n")
    assert printed.code == 0
    assert "\x1b" not in printed.out
    assert "price ?" in printed.out
    assert "cache lost: tools at tools[3], 900 tokens paid again; sort them" in printed.out
    assert "from the future: fact 1" in printed.out
    assert len(printed.out.splitlines()) == 5  # with the day, and with the model and the conversation
    assert "cache lost 1 time, 900 tokens paid again" in printed.err


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"event": "refused", "status": 400, "reason": "no JSON"}, "refused by the gateway (400): no JSON"),
        ({"event": "unanswered", "status": 429}, "refused by the upstream: status 429"),
        ({"event": "unanswered", "status": 0}, "no answer came from the upstream"),
        ({"event": "stopped", "cut_off": 0}, "the gateway stopped"),
    ],
)
def test_an_event_is_a_sentence(event: dict[str, Any], words: str) -> None:
    printed = run("log", "-f", "-", given=json.dumps({"at": 1.0, **event}).encode() + b"\n")
    assert words in printed.out


def test_a_reader_waits_for_whole_lines_and_follows_a_renamed_file(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    with JournalReader(path) as reader:
        assert [*reader.read_new()] == []
        path.write_bytes(b"one\ntw")
        assert [*reader.read_new()] == [b"one\n"]
        with path.open("ab") as file:
            file.write(b"o\n")
        assert [*reader.read_new()] == [b"two\n"]
        path.replace(tmp_path / "lines.jsonl.1")
        path.write_bytes(b"three\n")
        assert [*reader.read_new()] == [b"three\n"]
        path.write_bytes(b"4\n")  # emptied and begun again
        assert [*reader.read_new()] == [b"4\n"]


def test_a_large_file_is_renamed_and_no_line_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lines.jsonl"
    workers = [journal_module.JournalFile(path) for _ in range(2)]
    monkeypatch.setattr(journal_module, "LARGEST", 300)
    read: list[bytes] = []
    with JournalReader(path) as reader:
        for number in range(40):
            workers[number % 2].append(b"line %03d\n" % number)
            read += reader.read_new()
    assert read == [b"line %03d\n" % number for number in range(40)]
    assert path.stat().st_size <= 320


def test_what_is_sealed_or_not_kept_has_no_file_unless_it_is_named(tmp_path: Path) -> None:
    def find(**settings: Any) -> Path | None:
        return find_journal(GatewaySettings(store="x.db", **settings), {"LAMINA_SETTINGS": str(empty)})

    empty = tmp_path / "settings.toml"
    empty.write_text("")
    assert find() == Path("x.db.requests.jsonl")
    assert find(policy=Policy(keep="nothing")) is None
    assert find(key_file="key") is None
    assert find(journal="off") is None
    assert find(policy=Policy(keep="nothing"), journal="here.jsonl") == Path("here.jsonl")
    assert place_journal("files:folder") == Path("folder.requests.jsonl")
    assert place_journal("postgresql://me:secret@host/db").name == "gateway.requests.jsonl"
    assert run("log", "-f", "--once", "--store", tmp_path / "none.db").code == 2
    assert run("log", "-f", tmp_path / "none").code == 2


def test_a_live_file_is_followed_until_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"")
    event = {"at": 1.0, "event": "answered", "conversation": "c", "model": "claude-sonnet-5", "input": 1000}
    process = subprocess.Popen(
        [sys.executable, "-m", "lamina", "log", "-f", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=make_interruptible,  # noqa: PLW1509 - no threads here
    )
    assert process.stdout is not None
    path.write_bytes(json.dumps(event).encode() + b"\n")
    printed = [process.stdout.readline() for _ in range(3)]  # the day, the conversation, the request
    assert b"1,000 in" in printed[-1]
    process.send_signal(signal.SIGINT)
    _, remarks = process.communicate(timeout=30)
    assert process.returncode == 0
    assert b"lamina: 1 call in 1 conversation" in remarks
    assert b"Traceback" not in remarks
