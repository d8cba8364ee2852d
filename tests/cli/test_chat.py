"""`lamina chat` in a real terminal and behind a pipe, against a model that says what it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.cli.chat.models import PROVIDERS, ModelRoute, find_route, ollama_host
from lamina.errors import BadInput
from lamina.models import model as facts_of
from lamina.sessions import Session
from tests.cli.chatting import CTRL_C, CTRL_D, Answer, Model, Terminal, environment, model
from tests.cli.running import Ran, run
from tests.servers.serving import serve_http

SPEC = "# Limits\n\nAt most 20 requests a minute. #release\n"
OPTIONS = ("--model", "gpt-5", "--conversation", "s", "--store", "c.db", "--folder", "notes")
NOWHERE = {"OLLAMA_HOST": "127.0.0.1:9"}
Chat = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "spec.md").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("LAMINA_", "OLLAMA")):
            monkeypatch.delenv(name)
    for name, value in environment(folder).items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:  # noqa: ARG001 - it clears the addresses first
    with model(lambda _: "Yes.") as opened:
        monkeypatch.setenv("OPENAI_BASE_URL", opened.url)
        yield opened


@pytest.fixture
def chat(home: Path) -> Chat:
    def say(
        *lines: str,
        session: str = "s",
        options: tuple[str, ...] = ("--model", "gpt-5"),
        store: str = "c.db",
        tools: str = "none",
    ) -> Ran:
        given = "".join(f"{line}\n" for line in lines).encode()
        place = ("--conversation", session, "--store", f"{home}/{store}", "--folder", home / "notes")
        return run("chat", *place, "--tools", tools, *options, given=given)

    return say


def dialogue(home: Path, name: str = "s") -> list[str]:
    async def read() -> list[str]:
        async with Session.open(home / "c.db", name, model="gpt-5") as session:
            return [line.text for line in session.dialogue()]

    return anyio.run(read)


def test_a_file_is_attached_and_the_window_is_explained(folder: Path) -> None:
    with (
        model(lambda _: "Use **20** a minute.") as server,
        Terminal(folder, *OPTIONS, url=server.url, echo=True) as chat,
    ):
        chat.wait("session s")
        chat.enter("What does @spec.md say of @nothing?")
        shown = chat.wait("attached spec.md", "@nothing?: no such file", "Use **20** a minute.", "in full")
        line = next(line for line in shown.splitlines() if line.startswith("sent "))
        assert re.search(
            r" tokens · 500 of 1,000 from the cache · all \d pieces in full · \$0\.00\d\d$", line
        )
        assert "At most 20 requests" in server.said()
        chat.enter("/context")
        shown = chat.wait("free ")
        assert all(f"\n{layer}" in shown for layer in ("tools", "system", "turn", "prompt"))
        chat.enter("/why spec.md")
        chat.wait("spec.md: attached at turn 1, sent in full")
        chat.enter("/recall spec.md")
        chat.wait("At most 20 requests a minute.")
        chat.enter("/edit Only this.")
        chat.wait("in full", times=3)
        assert "What does" not in server.said()
        chat.type(CTRL_C)
        chat.type(f"half a line{CTRL_C}")
        chat.enter("/hepl")
        chat.wait("did you mean /help?")
        chat.enter("/help")
        chat.wait("/retry", "or /quit leaves.")
        chat.type(CTRL_D)
        assert chat.left() == 0
        assert "lamina chat --conversation s --store c.db --folder notes" in chat.shown
    assert len(server.requests) == 2


def test_an_interrupted_answer_keeps_its_words_and_the_chat_goes_on(folder: Path) -> None:
    def script(body: dict[str, Any]) -> Answer:
        first = len([one for one in body["messages"] if one["role"] == "user"]) == 1
        return Answer(" ".join(f"word{n}" for n in range(400)), pace=0.05) if first else Answer("Gladly.")

    with model(script) as server, Terminal(folder, *OPTIONS, url=server.url) as chat:
        chat.wait("session s")
        chat.enter("Count.")
        chat.wait("word9")
        chat.type(CTRL_C)
        chat.wait("(interrupted; what was said is kept; say go on, or /retry)")
        chat.enter("Go on.")
        chat.wait("Gladly.", "tokens")
        assert "word3" in server.said()
        assert "[interrupted]" in server.said()
        chat.enter("/quit")
        assert chat.left() == 0


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
        with Terminal(
            folder, "--conversation", "s", "--store", "c.db", "--folder", "notes", url=server.url
        ) as chat:
            chat.wait("gpt-5 at")
            chat.enter("/retry")
            chat.wait("Here it is.", "tokens")
            assert "The first answer." in server.said()
            assert server.said().count("Second?") == 1
            chat.type(CTRL_D)
            assert chat.left() == 0
    assert dialogue(folder) == ["First?", "The first answer.", "Second?", "Here it is."]


def wrote(server: Model, name: str) -> list[str]:
    last = server.requests[-1]["messages"]
    return [one["content"] for one in last if one["role"] == "tool" and name in str(one["content"])]


def test_what_changes_files_is_asked_for_first(folder: Path) -> None:
    """Ctrl-C at the question ends the turn and changes nothing."""
    notes = folder / "notes"
    names = ["one.txt", "two.txt", "three.txt", "four.txt"]

    def script(body: dict[str, Any]) -> Answer:
        last = body["messages"][-1]["content"]
        if last == "Remove it.":
            return Answer(calls=(("rm", {"path": "spec.md"}),))
        if last == "Leave it.":
            return Answer("As you like.")
        written = sum(one["role"] == "tool" for one in body["messages"]) - 1  # the first is that of rm
        if written == len(names):
            return Answer("Done.")
        return Answer(calls=(("write", {"path": names[written], "content": f"text of {names[written]}\n"}),))

    with model(script) as server, Terminal(folder, *OPTIONS, url=server.url) as chat:
        chat.wait("session s")
        chat.enter("Remove it.")
        chat.wait("the model wants to: rm spec.md", "allow?")
        chat.type(CTRL_C)
        chat.wait("(interrupted")
        chat.enter("Leave it.")
        chat.wait("As you like.", "tokens")
        assert "the turn was cancelled" in server.said()
        chat.enter("Write four files.")
        chat.wait("the model wants to: write one.txt", "+ text of one.txt", "allow?", times=2)
        chat.enter("y")
        chat.wait("write two.txt", "instead:", "allow?", times=3)
        assert not (notes / "two.txt").exists()
        chat.enter("use another name")
        chat.wait("write three.txt", "allow?", times=4)
        chat.enter("a")
        chat.wait("Done.", "tokens", times=2)
        assert chat.shown.count("allow?") == 4
    assert (notes / "spec.md").read_text(encoding="utf-8") == SPEC
    assert sorted(path.name for path in notes.glob("*.txt")) == ["four.txt", "one.txt", "three.txt"]
    assert wrote(server, "use another name") == ["Error: Not run: the user said: use another name"]


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("", (), ("no model was found", "OPENAI_API_KEY")),
        ("http://127.0.0.1:9/v1", ("--model", "local-7b"), ("--window",)),
    ],
)
def test_without_a_model_or_its_size_the_command_says_what_to_set(
    url: str, options: tuple[str, ...], words: tuple[str, ...], chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    if url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    done = chat("hi", options=options)
    assert (done.code, done.out) == (2, "")
    assert all(word in done.err for word in words)


def test_piped_lines_are_answered_on_standard_output_alone(server: Model, chat: Chat) -> None:
    server.script = lambda body: f"**Answer** to {body['messages'][-1]['content']}"
    done = chat("one", "zwö")
    assert (done.code, done.out) == (0, "**Answer** to one\n**Answer** to zwö\n")


def test_nothing_is_changed_where_nobody_can_be_asked(server: Model, chat: Chat, home: Path) -> None:
    def script(body: dict[str, Any]) -> Answer:
        done = body["messages"][-1]["role"] == "tool"
        return Answer("No.") if done else Answer(calls=(("write", {"path": "new.txt", "content": "x"}),))

    server.script = script
    done = chat("write", tools="all")
    assert "nobody is there" in server.said()
    names = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert (done.code, done.out) == (0, "No.\n")
    assert not (home / "notes" / "new.txt").exists()
    assert {"ls", "read", "grep", "write", "recall"} <= set(names)


def test_a_failing_server_is_told_and_the_message_is_kept(
    chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    done = chat("Anyone?", "/context")
    assert done.code == 1
    assert "the model's API did not answer" in done.err
    assert "system " in done.out
    assert dialogue(home) == ["Anyone?"]


def test_the_settings_name_the_window_of_their_model(server: Model, chat: Chat, home: Path) -> None:
    settings = home / "conf" / "lamina" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('model = "local-7b"\n[policy]\nbudget = 9000\n', encoding="utf-8")
    ran = chat("One?", "/context", options=())
    assert "window 9,000 tokens" in ran.out
    assert server.requests[-1]["model"] == "local-7b"
    assert "unknown model 'local-8b'" in chat("Two?", options=("--model", "local-8b")).err


def test_the_window_that_a_server_lists_is_read_again(server: Model, chat: Chat) -> None:
    server.windows = {"local-7b": 8192}
    assert "window 8,192 tokens" in chat("One?", "/context", options=("--model", "local-7b")).out
    server.windows = {"local-7b": 16384}
    assert "window 16,384 tokens" in chat("/context", options=()).out
    assert "window 4,096 tokens" in chat("/context", options=("--window", "4096")).out
    server.windows = {"local-7b": 2048}
    assert "window 2,048 tokens" in chat("/context", options=()).out


def test_a_conversation_keeps_its_model_and_window(server: Model, chat: Chat) -> None:
    assert chat("One?", options=("--model", "local-7b", "--window", "9000")).code == 0
    assert "window 9,000 tokens" in chat("Two?", "/context", options=()).out
    assert server.requests[-1]["model"] == "local-7b"


def test_no_password_of_a_server_is_shown_or_kept(
    server: Model, chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("//", "//ada:plum-tree@"))
    assert chat("One?", options=("--model", "local-7b", "--window", "9000")).out == "Yes.\n"
    assert b"plum-tree" not in (home / "c.db").read_bytes()


def test_a_sealed_store_takes_one_flag_and_shows_nothing_on_disk(server: Model, home: Path) -> None:
    options = ("--model", "gpt-5", "--conversation", "diary", "--sealed", "--folder", home / "notes")
    lines = "My secret is plum.\n"
    assert run("chat", *options, given=lines.encode()).code == 0
    assert run("chat", *options, given=b"Again?\n").code == 0
    assert "My secret is plum." in server.said()
    [key_file] = (home / "conf" / "lamina" / "keys").iterdir()
    assert key_file.stat().st_mode & 0o077 == 0
    files = [path for path in home.rglob("*") if path.is_file() and "notes" not in path.parts]
    assert any(path.name == "sealed.db" for path in files)
    for path in files:
        content = path.read_bytes()
        assert not [word for word in (b"plum", b"diary") if word in content], path
    key_file.unlink()
    lost = run("chat", *options, given=b"Hello?\n")
    assert lost.code == 4
    assert "key" in lost.err


@pytest.mark.usefixtures("server")
def test_a_plain_store_is_not_sealed_over_what_it_holds(chat: Chat, home: Path) -> None:
    chat("One?")
    done = chat("Two?", options=("--model", "gpt-5", "--sealed"))
    assert done.code in (2, 4)
    assert dialogue(home) == ["One?", "Yes."]


@contextmanager
def listing(**paths: Any) -> Iterator[str]:
    """A server that has these answers, by the last name of their paths."""

    class Listing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = json.dumps(paths.get(self.path.rpartition("/")[2])).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing."""

    with serve_http(Listing) as url:
        yield url


@pytest.mark.parametrize(
    ("name", "variables", "way"),
    [
        ("", {"ANTHROPIC_API_KEY": "k"}, ModelRoute(PROVIDERS["anthropic"].model, "anthropic")),
        ("", {"OPENAI_API_KEY": "k"}, ModelRoute(PROVIDERS["openai_chat"].model, "openai_chat")),
        ("", {"GOOGLE_API_KEY": "k"}, ModelRoute(PROVIDERS["gemini"].model, "gemini")),
        ("claude-opus-5", {"ANTHROPIC_API_KEY": "k"}, ModelRoute("claude-opus-5", "anthropic")),
        (
            "anthropic/claude-opus-5",
            {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://h/v1"},
            ModelRoute("anthropic/claude-opus-5", "openai_chat", "http://h/v1"),
        ),
        ("ollama/llama3.2", {}, ModelRoute("llama3.2", "ollama", "http://127.0.0.1:9")),
    ],
)
def test_a_model_is_found_by_its_name_and_the_keys(
    name: str, variables: dict[str, str], way: ModelRoute
) -> None:
    assert find_route(name, NOWHERE | variables) == way


@pytest.mark.parametrize(
    ("name", "variable"), [("", "OPENAI_BASE_URL"), ("claude-opus-5", "ANTHROPIC_API_KEY")]
)
def test_without_a_model_it_says_what_to_set(name: str, variable: str) -> None:
    with pytest.raises(BadInput, match=variable):
        find_route(name, NOWHERE | ({"OPENAI_API_KEY": "k"} if name else {}))


def test_a_local_ollama_is_found_with_its_newest_model() -> None:
    with listing(tags={"models": [{"name": "qwen3:4b"}, {"name": "llama3.2:latest"}]}) as url:
        variables = {"OLLAMA_HOST": url}
        assert find_route("", variables) == ModelRoute("qwen3:4b", "ollama", url)
        assert find_route("llama3.2", variables) == ModelRoute("llama3.2", "ollama", url)
        with pytest.raises(BadInput, match="nothing here can reach"):
            find_route("llama4", variables)


def test_a_server_of_ones_own_says_which_model_it_has() -> None:
    with listing(models={"data": [{"id": "local-7b"}]}) as url:
        assert find_route("", {"OPENAI_BASE_URL": f"{url}/v1"}).model == "local-7b"
        with pytest.raises(BadInput, match="lists no models"):
            find_route(
                "",
                {"OPENAI_BASE_URL": f"{url}/v2/nothing"} | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
            )


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("", "http://127.0.0.1:11434"), ("0.0.0.0", "http://127.0.0.1:11434"),  # noqa: S104 - what a server listens on
        (":8000", "http://127.0.0.1:8000"),
        ("box:1234", "http://box:1234"), ("https://box.example", "https://box.example"),
        ("[::1]", "http://[::1]:11434"),
    ],
)  # fmt: skip
def test_the_host_of_ollama_is_read_as_its_own_programs_do(given: str, host: str) -> None:
    assert ollama_host({"OLLAMA_HOST": given}) == host


def test_the_usual_models_are_known() -> None:
    assert all(facts_of(provider.model).window for provider in PROVIDERS.values() if provider.model)
