"""A long day in `lamina chat`, in a real terminal: forty turns with everything that a user does in them."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chatting import CTRL_D, Answer, Model, Terminal, model, pages

SECRETS = (b"plum", b"Ada", b"diary")


class Walk:
    """A chat and how many turns it has had. A turn is over when the line about it is shown."""

    def __init__(self, chat: Terminal) -> None:
        self.chat = chat

    def ask(self, words: str, *shown: str) -> None:
        self.chat.enter("/cost")  # what it prints separates this turn from the ones before
        self.chat.wait("whole conversation")
        self.chat.screen.reset()
        self.chat.enter(words)
        self.chat.wait(*shown, " tokens · ", "\n>")

    def do(self, command: str, *shown: str) -> None:
        self.chat.screen.reset()
        self.chat.enter(command)
        self.chat.wait(*shown)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "spec.md").write_text("# Limits\n\nAt most 20 requests a minute.\n", encoding="utf-8")
    (notes / "plan.md").write_text("---\ntags: [draft]\n---\nPaint the fence green.\n", encoding="utf-8")
    (tmp_path / "pirate.md").write_text("You are a pirate.", encoding="utf-8")
    return tmp_path


def script(body: dict[str, Any]) -> Answer:
    if "slowly" in str(body["messages"][-1]["content"]):
        return Answer(" ".join(f"word{number}" for number in range(400)), pace=0.05)
    return Answer("Some **words** about it.\n\n```python\nx = 1\n```")


def use_everything(folder: Path, server: Model) -> None:
    """The first run: everything that can be attached, another persona, another model; killed at the end."""
    options = ("--conversation", "walk", "--store", "c.db", "--folder", "notes", "--tools", "none")
    with (
        pages({"/tide": ("text/html", "<title>Tide</title><p>The tide is high.</p>")}) as address,
        Terminal(folder, *options, "--model", "local-7b", "--window", "4000", url=server.url) as chat,
    ):
        walk = Walk(chat)
        chat.wait("session walk")
        walk.ask("Read @spec.md please.", "attached spec.md", "Some words about it.\n\nx = 1")
        walk.ask("All of @. please.", "attached plan.md")
        walk.ask("What has @#draft?", "attached plan.md")
        walk.ask(f"And @{address}/tide", "attached http")
        assert "The tide is high." in server.said()
        walk.ask("remember that my cat is called Ada", "remembered as 1")
        walk.do("/search fence green", "file plan.md", "/attach N")
        walk.do("/attach 1", "with your next message")
        for number in range(22):
            walk.ask(f"Turn {number}: tell me more about the fence, the gate, the pond and the shed.")
        walk.do(f"/persona {folder}/pirate.md", "session walk")
        walk.ask("Who are you?")
        assert "You are a pirate." in server.said()
        walk.do("/model local-8b 5000", "local-8b at")
        walk.ask("Still there?")
        assert server.requests[-1]["model"] == "local-8b"
        walk.do("/context", "a cut is due above")
        chat.enter("Count slowly.")
        chat.wait("word5")
        chat.child.kill(signal.SIGKILL)
        assert chat.left() == -signal.SIGKILL


def go_on(folder: Path, server: Model) -> None:
    """The second run, with nothing said about model, window or server."""
    options = ("--conversation", "walk", "--store", "c.db", "--folder", "notes", "--tools", "none")
    with Terminal(folder, *options) as chat:
        walk = Walk(chat)
        chat.wait("local-8b at", "30 turns so far", "> Count slowly.", "/retry asks again")
        walk.do("/window", "the window of local-8b is 5,000 tokens")
        walk.ask("/edit Count faster.")
        assert "slowly" not in server.said()
        for number in range(10):
            walk.ask(f"Late turn {number}.")
        walk.do("/rename walked", "session walked")
        walk.do("/export out.md", "written to out.md")
        walk.do("/new other", "session other")
        walk.ask("What is my cat called?")
        assert "my cat is called Ada" in server.said()
        walk.do("/search Late turn", "chat walked")
        chat.type(CTRL_D)
        assert chat.left() == 0
        assert "lamina chat --conversation other --store c.db --folder notes" in chat.shown


def keep_a_secret(folder: Path, server: Model) -> None:
    options = ("--sealed", "--conversation", "diary", "--folder", "notes", "--tools", "none")
    with Terminal(folder, *options, "--model", "local-7b", "--window", "4000", url=server.url) as chat:
        chat.wait("sealed with a new key", "session diary")
        Walk(chat).ask("My secret is plum; remember: Ada.")
        chat.type(CTRL_D)
        assert chat.left() == 0
    with Terminal(folder, *options) as chat:
        chat.wait("sealed; the key is", "local-7b at", "My secret is plum")
        chat.enter("/quit")
        assert chat.left() == 0


@pytest.mark.thorough
def test_a_long_day_in_the_chat_and_what_is_on_disk_after_it(folder: Path) -> None:
    with model(script) as server:
        use_everything(folder, server)
        go_on(folder, server)
        keep_a_secret(folder, server)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    own = [name for name in files if not name.startswith("notes/") and name not in ("pirate.md", "out.md")]
    keys = [name for name in own if re.fullmatch(r"conf/lamina/keys/[0-9a-f]{16}\.key", name)]
    assert len(keys) == 1
    assert sorted(set(own) - set(keys)) == ["c.db", "data/lamina/chat_history", "data/lamina/sealed.db"]
    for name in own:
        assert files[name].stat().st_mode & 0o077 == 0, name
    sealed = files["data/lamina/sealed.db"].read_bytes()
    assert not [secret for secret in SECRETS if secret in sealed]
    assert b"plum" not in files["data/lamina/chat_history"].read_bytes()
    assert "Late turn 9." in files["out.md"].read_text(encoding="utf-8")
