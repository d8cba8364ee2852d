"""`lamina chat` in a real terminal, against a model that says what it is told to."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.core.values import Role
from lamina.sessions import Session
from lamina.stores.sealed import init_file
from tests.cli.chatting import BACKSPACE, CTRL_C, CTRL_D, CTRL_U, TAB, UP, Answer, Model, Terminal, model

SPEC = "# Limits\nAt most 20 requests a minute.\n"
OPTIONS = ("--model", "gpt-5", "--conversation", "s", "--store", "chats.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "spec.md").write_text(SPEC, encoding="utf-8")
    return tmp_path


def log_of(folder: Path) -> list[tuple[Role, str]]:
    async def read() -> list[tuple[Role, str]]:
        async with Session.open(folder / "chats.db", "s") as session:
            return [(each.role, each.text) for each in session.dialogue()]

    return anyio.run(read)


def test_files_are_completed_and_attached_and_the_window_is_explained(folder: Path) -> None:
    with (
        model(lambda _: "Use **20** a minute.") as server,
        Terminal(folder, *OPTIONS, url=server.url) as chat,
    ):
        chat.wait("session s")
        chat.type(f"What does @do{TAB}")
        chat.wait("@docs/")
        chat.type(f"sp{TAB}")
        chat.wait("@docs/spec.md")
        chat.enter(" say?")
        shown = chat.wait("attached docs/spec.md", "Use 20 a minute.", "in full")
        told = next(line for line in shown.splitlines() if line.startswith("sent "))
        assert re.search(
            r" tokens · 500 of 1,000 from the cache · all \d pieces in full · \$0\.00\d\d$", told
        )
        assert "At most 20 requests" in server.said()
        assert "What does @docs/spec.md say?" in server.said()
        chat.enter("/context")
        shown = chat.wait("a cut is due above", "no cut so far")
        assert all(f"\n{layer}" in shown for layer in ("tools", "system", "turn", "prompt", "free"))
        chat.enter("/why docs")
        chat.wait("turn, full", "Limits At most")
        chat.enter("/recall docs/spec.md")
        chat.wait("At most 20 requests a minute.", times=2)
        chat.enter("/inspect")
        address = re.search(
            r"request by request: (http://127\.0\.0\.1:\d+/)", chat.wait("request by request: http")
        )
        assert address
        with urllib.request.urlopen(f"{address[1]}api/sessions", timeout=20) as answer:  # noqa: S310
            assert [each["name"] for each in json.load(answer)["sessions"]] == ["s"]
        chat.enter("/cost")
        chat.wait("last turn: 1 call, 1,000 tokens read (50% from the cache), 10 written, $0.00")
        chat.type(CTRL_C)
        chat.type(f"half a line{CTRL_C}")
        chat.enter("/help")
        chat.wait("/compact [HOW]", "Ctrl-D leaves.")
        chat.type(CTRL_D)
        assert chat.left() == 0
        assert "lamina chat --conversation s --store chats.db" in chat.shown
    assert len(server.requests) == 1


def test_an_interrupted_answer_keeps_its_words_and_the_chat_goes_on(folder: Path) -> None:
    def script(body: dict[str, Any]) -> Answer:
        first = len([one for one in body["messages"] if one["role"] == "user"]) == 1
        return Answer(" ".join(f"word{n}" for n in range(400)), pace=0.05) if first else Answer("Gladly.")

    with model(script) as server, Terminal(folder, *OPTIONS, url=server.url, echo=True) as chat:
        chat.wait("session s")
        chat.enter("Count.")
        chat.wait("word3")
        chat.type("typed early")
        assert "typed early" not in chat.wait("word9")
        chat.type(CTRL_C)
        chat.wait("(interrupted; what was said is kept; /continue goes on)")
        chat.enter("/continue")
        chat.wait("Gladly.", "tokens")
        assert "word3" in server.said()
        assert "[interrupted]" in server.said()
        chat.enter("/quit")
        assert chat.left() == 0
    said = log_of(folder)
    assert [role.value for role, _ in said] == ["user", "assistant", "user", "assistant"]
    assert said[1][1].startswith("word0 word1")
    assert said[1][1].endswith("[interrupted]")


def test_a_message_is_edited_in_place_and_a_session_deleted_when_the_user_says_so(folder: Path) -> None:
    (folder / "docs" / "tagged.md").write_text("About #rivers.", encoding="utf-8")
    answer = "# Title\n\nSome `code`:\n\n```python\nx = 1\n```\n\n- item"
    with model(lambda _: answer) as server, Terminal(folder, *OPTIONS, url=server.url) as chat:
        chat.wait("session s")
        chat.type(f"What of @#riv{TAB}")
        chat.wait("@#rivers")
        chat.enter(" today?")
        shown = chat.wait("attached docs/tagged.md", "in full")
        assert "Title\n\nSome code:\n\nx = 1\n\n • item\n" in shown
        chat.enter("/edit")
        chat.wait("> What of @#rivers today?", times=2)
        chat.type(f"{BACKSPACE * 6}tomorrow?")
        chat.wait("> What of @#rivers tomorrow?")
        chat.enter("")
        chat.wait("in full", times=2)
        assert "today" not in server.said()
        assert "rivers tomorrow?" in server.said()
        chat.enter("/delete")
        chat.wait("for good? [y/N]")
        chat.type(CTRL_C)
        chat.wait("nothing was deleted")
        chat.enter("/delete")
        chat.wait("for good? [y/N]", times=2)
        chat.enter("y")
        chat.wait("'s' is deleted", "session chat-")
        chat.type(CTRL_D)
        assert chat.left() == 0
    assert log_of(folder) == []


def test_a_killed_chat_goes_on_with_all_that_was_said(folder: Path) -> None:
    slow = Answer("never " * 400, pace=0.05)
    answers = iter([Answer("The first answer."), slow, Answer("Here it is.")])
    with model(lambda _: next(answers)) as server:
        with Terminal(folder, *OPTIONS, url=server.url) as chat:
            chat.wait("session s")
            chat.enter("First?")
            chat.wait("The first answer.", "tokens")
            chat.enter("Second?")
            chat.wait("never never")
            chat.child.kill(signal.SIGKILL)
            assert chat.left() == -signal.SIGKILL
        with Terminal(folder, "--conversation", "s", "--store", "chats.db", url=server.url) as chat:
            chat.wait("gpt-5 at", "2 turns so far", "> Second?", "/retry asks again")
            chat.enter("/retry")
            chat.wait("Here it is.", "tokens")
            assert "The first answer." in server.said()
            assert server.said().count("Second?") == 1
            chat.type(UP + UP)  # the history of the first run, before /retry
            chat.wait("> Second?", times=2)
            chat.type(
                CTRL_U + CTRL_D
            )  # an empty line, and the end: Ctrl-C would begin a new prompt in between
            assert chat.left() == 0
    assert [text for _, text in log_of(folder)] == ["First?", "The first answer.", "Second?", "Here it is."]


def wrote(server: Model, name: str) -> list[str]:
    last = server.requests[-1]["messages"]
    return [one["content"] for one in last if one["role"] == "tool" and name in str(one["content"])]


def test_what_changes_files_is_asked_for_first(folder: Path) -> None:
    """Ctrl-C at the question ends the turn and changes nothing. Beside a sealed store no line is kept."""
    init_file(key := str(folder / "key"))
    names = ["one.txt", "two.txt", "three.txt", "four.txt"]

    def script(body: dict[str, Any]) -> Answer:
        last = body["messages"][-1]["content"]
        if last == "Remove it.":
            return Answer(calls=(("rm", {"path": "docs/spec.md"}),))
        if last == "Leave it.":
            return Answer("As you like.")
        written = sum(one["role"] == "tool" for one in body["messages"]) - 1  # the first is that of rm
        if written == len(names):
            return Answer("Done.")
        return Answer(calls=(("write", {"path": names[written], "content": f"text of {names[written]}\n"}),))

    options = (*OPTIONS, "--key-file", key)
    with model(script) as server, Terminal(folder, *options, url=server.url) as chat:
        chat.wait("session s")
        chat.enter("Remove it.")
        chat.wait("the model wants to: rm docs/spec.md", "allow?")
        chat.type(CTRL_C)
        chat.wait("(interrupted")
        chat.enter("Leave it.")
        chat.wait("As you like.", "tokens")
        assert "the turn was cancelled" in server.said()
        chat.enter("Write four files.")
        chat.wait("the model wants to: write one.txt", "+ text of one.txt", "allow?", times=2)
        chat.enter("y")
        chat.wait("write two.txt", "instead:", "allow?", times=3)
        assert not (folder / "two.txt").exists()
        chat.enter("use another name")
        chat.wait("write three.txt", "allow?", times=4)
        chat.enter("a")
        chat.wait("Done.", "tokens", times=2)
        assert chat.shown.count("allow?") == 4
    assert (folder / "docs" / "spec.md").read_text(encoding="utf-8") == SPEC
    assert sorted(path.name for path in folder.glob("*.txt")) == ["four.txt", "one.txt", "three.txt"]
    assert wrote(server, "use another name") == ["Error: Not run: the user said: use another name"]
    assert not (folder / "data" / "lamina" / "chat_history").exists()


def test_sessions_are_left_and_opened_without_leaving(folder: Path) -> None:
    """What is typed is kept privately, and a model cannot speak to the terminal."""

    def script(body: dict[str, Any]) -> str:
        is_evil = body["messages"][-1]["content"] == "Hi."
        return "Fine.\x1b]0;owned\x07\x1b[2J\x9b2J end" if is_evil else "Hello."

    with model(script) as server, Terminal(folder, *OPTIONS, url=server.url) as chat:
        chat.wait("session s")
        chat.enter("In the first.")
        chat.wait("Hello.", "tokens")
        chat.enter("/new other")
        chat.wait("session other")
        chat.enter("In the other.")
        chat.wait("Hello.", "tokens", times=2)
        assert "In the first." not in server.said()
        chat.enter("/sessions")
        shown = chat.wait("* other", "  s ", "In the first.", times=2)
        assert re.search(r"^\* other  \d{4}-\d\d-\d\d \d\d:\d\d  In the other\.$", shown, re.MULTILINE)
        chat.enter("/recall nosuch")
        chat.wait("! key: nothing here is called 'nosuch'; /why lists the keys")
        chat.enter("/seshions")
        chat.wait("did you mean /sessions?")
        chat.enter("/attach nosuch.txt")
        chat.wait("! nosuch.txt: there is no such file or folder")
        chat.enter("/open s")
        chat.wait("1 turn so far")
        chat.type(f"/open ot{TAB}")
        chat.wait("> /open other")
        chat.enter("")
        chat.wait("session other", times=2)
        chat.enter("/open nowhere")
        chat.wait("there is no session 'nowhere'")
        chat.enter("Hi.")
        chat.wait("Fine.]0;owned[2J2J end")
        assert chat.screen.title != "owned"
        assert "there is no session" in chat.shown
    history = folder / "data" / "lamina" / "chat_history"
    assert "In the first." in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o077 == 0


def test_without_the_editor_lines_are_plain_and_ctrl_c_does_the_same(folder: Path) -> None:
    answers = iter([Answer("slow " * 400, pace=0.05), Answer("Gladly.")])
    with (
        model(lambda _: next(answers)) as server,
        Terminal(folder, *OPTIONS, url=server.url, without="prompt_toolkit") as chat,
    ):
        chat.wait("install lamina-context[chat]", "session s", "\n>")
        chat.type(CTRL_C)
        chat.wait("\n>", times=2)
        chat.enter("Talk.")
        chat.wait("slow slow")
        chat.type(CTRL_C)
        chat.wait("(interrupted")
        chat.enter("Go on.")
        chat.wait("Gladly.", "tokens")
        assert "[interrupted]" in server.said()
        chat.type(CTRL_D)
        assert chat.left() == 0
