"""The commands of a chat, one piped line after the other, against a model that says what it is told to."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.cli.chat import talk
from lamina.cli.chat.conversation import TerminalChat
from lamina.cli.chat.keys import find_or_make_key, key_path, sealed_address
from lamina.cli.chat.search import SearchedTexts
from lamina.context.memory import MEMORY
from lamina.conversations.deleting import COSTS
from lamina.core.values import Role
from lamina.fitting import Policy
from lamina.sessions import Session
from lamina.settings import Settings, config_folder
from lamina.stores import ListedConversation, MemoryStore, Where, open_store
from lamina.stores.port import OwnName
from lamina.workspace import Workspace
from tests.cli.chatting import Answer, Model, environment, model, pages
from tests.cli.running import Ran, run

Chat = Callable[..., Ran]

SPEC = "# Limits\n\nAt most 20 requests a minute. #release\n"
PLAN = "---\ntags: [draft, release/2.0]\n---\nPaint the fence green.\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("LAMINA_", "OLLAMA")):
            monkeypatch.delenv(name)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "spec.md").write_text(SPEC, encoding="utf-8")
    (notes / "plan.md").write_text(PLAN, encoding="utf-8")
    return tmp_path


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


def names(home: Path) -> set[str]:
    async def read() -> set[str]:
        async with open_store(f"{home}/c.db") as store:
            return {head.conversation for head in await store.list("")}

    return anyio.run(read)


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
    assert "no cut so far" in done.out
    assert dialogue(home) == ["Anyone?"]


@pytest.mark.usefixtures("server")
def test_the_cost_is_that_of_the_whole_conversation(chat: Chat, home: Path) -> None:
    async def list_costs() -> Sequence[ListedConversation]:
        async with open_store(f"{home}/c.db") as store:
            return await store.list(OwnName(COSTS))

    first = chat("One?", "Two?", "/cost")
    second = chat("/cost", "Three?", "/cost")
    assert run("conversations", "copy", f"{home}/copy.db", "--store", f"{home}/c.db").code == 0
    assert run("conversations", "delete", "s", "--store", f"{home}/c.db", "--yes").code == 0
    assert list(anyio.run(list_costs)) == []
    assert "whole conversation: 2 calls, 2,000 tokens read (50% from the cache), 20 written, $" in first.out
    assert "last turn: nothing\nwhole conversation: 2 calls, 2,000 tokens" in second.out
    assert "last turn: 1 call, 1,000 tokens" in second.out
    assert "whole conversation: 3 calls, 3,000 tokens" in second.out
    assert "whole conversation: 3 calls, 3,000 tokens" in chat("/cost", store="copy.db").out
    assert "whole conversation: nothing" in chat("/cost").out


@pytest.mark.usefixtures("server")
def test_turns_of_another_program_are_said_not_to_be_counted(chat: Chat, home: Path) -> None:
    async def talk_elsewhere() -> None:
        async with Session.open(f"{home}/c.db", "s", model="gpt-5") as session:
            await session.ask("Before?")
            await session.record("Yes.")

    anyio.run(talk_elsewhere)
    done = chat("Now?", "/cost")
    assert "whole conversation: 1 call, " in done.out
    assert "(1 earlier turn was not counted)" in done.out


@pytest.mark.usefixtures("server")
def test_no_server_of_a_chat_outlives_it(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    chats: list[TerminalChat] = []  # a chat that nobody holds would be closed with the garbage

    def hold_chat(*arguments: Any, **options: Any) -> TerminalChat:
        chats.append(TerminalChat(*arguments, **options))
        return chats[-1]

    monkeypatch.setattr(talk, "TerminalChat", hold_chat)
    done = chat("/inspect")
    names = {thread.name for thread in threading.enumerate()}
    for each in chats:
        each.close()
    assert "request by request: http" in done.out
    assert "lamina-inspector" not in names


def test_a_chat_goes_on_with_a_model_whose_window_only_the_user_knew(
    server: Model, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = chat("One?", options=("--model", "local-7b", "--window", "9000"))
    assert (first.code, first.out) == (0, "Yes.\n")
    again = chat("Two?", "/window", options=())
    assert (again.code, again.err) == (0, "")
    assert again.out == "Yes.\nthe window of local-7b is 9,000 tokens; /window N changes it\n"
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("OPENAI_API_KEY", "of another provider")
    third = chat("Three?", options=())
    assert (third.code, third.out) == (0, "Yes.\n")
    assert server.requests[-1]["model"] == "local-7b"
    assert server.headers[-1]["authorization"] == "Bearer none"  # the key is of this environment alone


def test_the_settings_name_the_window_of_their_model(server: Model, chat: Chat, home: Path) -> None:
    settings = home / "conf" / "lamina" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('model = "local-7b"\n[policy]\nbudget = 9000\n', encoding="utf-8")
    done = chat("One?", "/window", "/model local-8b", options=())
    assert done.out == "Yes.\nthe window of local-7b is 9,000 tokens; /window N changes it\n"
    assert server.requests[-1]["model"] == "local-7b"
    assert "unknown model 'local-8b'" in done.err


def test_no_password_of_a_server_is_shown_or_kept(
    server: Model, chat: Chat, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("//", "//ada:plum-tree@"))
    assert chat("One?", options=("--model", "local-7b", "--window", "9000")).out == "Yes.\n"
    assert b"plum-tree" not in (home / "c.db").read_bytes()


def test_the_window_that_a_server_lists_is_read_again(server: Model, chat: Chat) -> None:
    server.windows = {"local-7b": 8192}
    assert "is 8,192 tokens" in chat("/window", "One?", options=("--model", "local-7b")).out
    server.windows = {"local-7b": 16384}
    assert "is 16,384 tokens" in chat("/window", options=()).out
    kept = chat("/window 4096", "/window", "Two?", options=())
    assert "is 4,096 tokens" in kept.out
    assert "is 4,096 tokens" in chat("/window", options=()).out
    server.windows = {"local-7b": 2048}
    assert "is 2,048 tokens" in chat("/window", options=()).out


def test_another_model_answers_from_the_next_message_on_and_is_kept(server: Model, chat: Chat) -> None:
    done = chat("One?", "/model", "/model local-7b 9000", "Two?", "/window", "/model nowhere-1", "Three?")
    assert [body["model"] for body in server.requests] == ["gpt-5", "local-7b", "local-7b"]
    assert "gpt-5; /model NAME [WINDOW]" in done.out
    assert "is 9,000 tokens" in done.out
    assert "unknown model 'nowhere-1'" in done.err
    assert (done.code, done.out.count("Yes.")) == (1, 3)  # the line after it is answered
    chat("Four?", options=())
    assert server.requests[-1]["model"] == "local-7b"
    chat("/model gpt-5", "Five?", "/window", options=())
    assert server.requests[-1]["model"] == "gpt-5"
    assert "is 9,000 tokens" not in chat("/window", options=()).out  # that was of the other model
    assert "One?" in server.said()


def test_an_old_chat_is_opened_with_its_own_model(server: Model, chat: Chat) -> None:
    chat("In a.", session="a", options=("--model", "local-7b", "--window", "9000"))
    chat("In b.", "/open a", "Again in a.", "/new c", "In c.", session="b")
    assert [body["model"] for body in server.requests] == ["local-7b", "gpt-5", "local-7b", "local-7b"]
    assert "In a." in server.said(2)


def test_a_persona_is_shown_and_changed(server: Model, chat: Chat, home: Path) -> None:
    (home / "pirate.md").write_text("You are a pirate.", encoding="utf-8")
    done = chat("One?", "/persona", f"/persona {home}/pirate.md", "Two?", "/persona", "/persona nosuch.md")
    assert "You are a careful coworker" in server.said(0)
    assert "You are a pirate." in server.said(1)
    assert "You are a careful coworker" in done.out
    assert f"the text of {home}/pirate.md" in done.out
    assert "nosuch.md: there is no such file" in done.err
    later = chat("/persona", "Three?", options=())
    assert later.out.startswith("You are a pirate.\n")
    assert "You are a pirate." in server.said()


def test_changes_before_a_message_add_up(server: Model, chat: Chat) -> None:
    changes = (
        "/last 2",
        "/window 9000",
        "/persona You are a pirate.",
        "/model local-7b 8000",
        "/persona",
        "/last",
    )
    done = chat(*changes, "Hello?", "/window", options=("--model", "local-8b", "--window", "7000"))
    assert (done.code, done.err) == (0, "")
    assert "the last 2 messages are sent; /last N" in done.out
    assert "the window of local-7b is 8,000 tokens" in done.out
    assert server.requests[-1]["model"] == "local-7b"
    assert "You are a pirate." in server.said()
    more = chat(
        "/window 9000",
        "/persona You are a cook.",
        "/window",
        options=("--model", "local-8b", "--window", "7000"),
    )
    assert "the window of local-8b is 9,000 tokens" in more.out


def test_what_the_user_wants_remembered_is_known_in_every_chat(server: Model, chat: Chat) -> None:
    first = chat(
        "Hello.\n", "Please remember that my cat is called Ada.", "/remember I live in Graz", "/memory"
    )
    assert "  1  my cat is called Ada.  (s)\n  2  I live in Graz  (s)\n" in first.out
    assert "my cat is called Ada" in server.said(1)
    chat("Who is my cat?", session="other")
    assert "my cat is called Ada." in server.said()
    assert "I live in Graz" in server.said()
    changed = chat("/memory 1 my cat is called Eva", "/forget 2", "/memory", "/forget 7", session="third")
    assert changed.out.endswith(
        "1 is changed\nforgotten: I live in Graz\n  1  my cat is called Eva  (third)\n"
    )
    assert "there is no such fact" in changed.err
    chat("And now?", session="fourth")
    assert "called Eva" in server.said()
    assert "Graz" not in server.said()
    assert MEMORY not in chat("/sessions").out


def test_a_fact_is_remembered_once_and_asking_about_memory_is_no_fact(server: Model, chat: Chat) -> None:
    lines = ("remember: tabs", "Remember that tabs", "Do you remember that day?", "remember")
    assert chat(*lines, "/memory").out.endswith("  1  tabs  (s)\n")
    assert len(server.requests) == 4


def test_search_finds_files_and_old_chats_and_what_is_found_can_be_attached(
    server: Model, chat: Chat, home: Path
) -> None:
    chat("The kettle in the office whistles at noon.", session="old")
    found = chat("/search kettle whistles", "/search requests a minute", "/attach 1", "How many?")
    assert " 1  chat old, user\n    The kettle in the office whistles at noon.\n" in found.out
    assert " 1  file spec.md, lines " in found.out
    assert "with your next message: excerpt spec.md" in found.out
    assert "At most 20 requests a minute." in server.said()
    (home / "notes" / "spec.md").unlink()
    (home / "notes" / "new.md").write_text("The gate is blue.", encoding="utf-8")
    later = chat("/search kettle", "/attach 9", "/search At most 20 requests", "/search gate", session="t")
    assert "there is no passage 9" in later.err
    assert "file spec.md" not in later.out
    assert "file new.md" in later.out


def test_a_search_reads_again_what_changed_meanwhile(server: Model, chat: Chat, home: Path) -> None:
    def script(_: dict[str, Any]) -> str:
        (home / "notes" / "plan.md").write_text("The shed is yellow.", encoding="utf-8")
        return "I saw a heron."

    server.script = script
    done = chat("/search fence green", "Anything new?", "/search yellow shed", "/search heron")
    assert "file plan.md" in done.out
    assert "The shed is yellow." in done.out
    assert "chat s, assistant\n    I saw a heron." in done.out


def test_a_search_that_was_interrupted_has_not_read_in_vain(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read_file = SearchedTexts._read_file  # noqa: SLF001

    async def read_and_count(texts: SearchedTexts, path: str) -> Any:
        reads.append(path)
        if len(reads) == 2:
            raise KeyboardInterrupt
        return await read_file(texts, path)

    async def search_twice() -> list[str]:
        with closing(Workspace(home / "notes")) as space:
            texts = SearchedTexts(MemoryStore(), "", space, home / "notes")
            with pytest.raises(KeyboardInterrupt):
                await texts.find("fence")
            passages, _ = await texts.find("fence")
            await texts.close()
        return [passage.name for passage in passages]

    monkeypatch.setattr(SearchedTexts, "_read_file", read_and_count)
    assert anyio.run(search_twice) == ["plan.md"]
    assert reads == [reads[0], reads[1], reads[1]]


def test_tags_folders_and_links_are_attached(server: Model, chat: Chat) -> None:
    with pages({"/a": ("text/html", "<title>T</title><p>The tide is high.</p>")}) as address:
        done = chat(f"Is it @{address}/a?", "What about @#release?", "And @#nosuch?", "All of @. now")
        gone = chat(f"Read @{address}/gone please")
    assert "The tide is high." in server.said(0)
    assert "At most 20 requests" in server.said(1)
    assert "Paint the fence" in server.said(1)
    assert (done.code, done.err) == (0, "")
    assert len(server.requests) == 4  # the message about a page that is not there was not sent
    assert gone.code == 1
    assert "nothing of it can be sent" in gone.err


def test_a_page_of_this_machine_cannot_lead_to_another_server_of_it(server: Model, chat: Chat) -> None:
    with pages({"/s": ("text/plain", "secret")}) as other, pages({}, redirect=f"{other}/s") as address:
        done = chat(f"Read @{address}/a")
    assert done.code == 1
    assert not server.requests


def test_a_message_is_edited_and_sent_again_with_what_was_attached(
    server: Model, chat: Chat, home: Path
) -> None:
    chat("/attach spec.md", "How mny of @plan.md?", "/edit How many?")
    assert server.said().count("How many?") == 1
    assert "How mny" not in server.said()
    assert "At most 20 requests" in server.said()
    assert "Paint the fence" in server.said()
    assert dialogue(home) == ["How many?", "Yes."]
    assert "nothing was said yet" in chat("/edit x", session="new").err
    assert "it takes the new words" in chat("/edit").err


def test_an_answer_that_was_cut_off_goes_on(server: Model, chat: Chat, home: Path) -> None:
    parts = iter([Answer("half of", stop="length"), Answer("the rest.")])
    server.script = lambda _: next(parts)
    done = chat("Tell me.", "/continue")
    assert "cut off at its longest length; /continue goes on" in done.err
    assert "Go on exactly where you stopped" in server.said()
    assert dialogue(home)[-1] == "the rest."
    assert "nothing was said yet" in chat("/continue", session="new").err


def test_prompts_are_saved_listed_and_sent(server: Model, chat: Chat, home: Path) -> None:
    done = chat("/save review Look for mistakes in {}, briefly.", "/prompt", "/prompt review @spec.md")
    assert "review: Look for mistakes in {}, briefly." in done.out
    assert "Look for mistakes in @spec.md, briefly." in server.said()
    assert "At most 20 requests" in server.said()
    assert (home / "conf" / "lamina" / "prompts" / "review.md").read_text() == (
        "Look for mistakes in {}, briefly.\n"
    )
    chat("Say it in German:", "/save german", "/prompt german Good morning")
    assert "Say it in German:\\n\\nGood morning" in server.said()
    assert "no prompt is called 'x'" in chat("/prompt x").err
    assert "is no name for a prompt" in chat("/save ../x y").err


def test_a_session_is_renamed_with_all_that_belongs_to_it(server: Model, chat: Chat, home: Path) -> None:
    done = chat("One?", "/edit Two?", "/rename better", "Three?", "/cost")
    assert names(home) == {"better"}
    assert dialogue(home, "better") == ["Two?", "Yes.", "Three?", "Yes."]
    assert "whole conversation: 3 calls" in done.out
    assert "Two?" in server.said()
    chat("Other.", session="other")
    assert "there is a session 'other'" in chat("/rename other", session="better").err
    assert "nothing was said yet" in chat("/rename x", session="empty").err


@pytest.mark.usefixtures("server")
def test_a_session_is_exported_and_can_be_imported(chat: Chat, home: Path) -> None:
    chat("One?", f"/export {home}/s.md", f"/export {home}/s.jsonl")
    again = chat(f"/export {home}/s.md")
    assert "nobody is there to confirm it" in again.err
    assert (home / "s.md").read_text("utf-8").startswith("**user**: One?\n\n**assistant**: ")
    store = f"{home}/s.db"
    assert run("conversations", "import", home / "s.jsonl", "t", "--store", store).code == 0
    assert "user: One?" in run("conversations", "show", "t", "--store", store).out


@pytest.mark.usefixtures("server")
def test_the_page_of_the_chat_lists_the_commands_as_help_does(chat: Chat) -> None:
    page = Path(__file__).parents[2] / "docs" / "chat.md"
    assert f"```text\n{chat('/help').out}```" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("server")
def test_nothing_is_deleted_where_nobody_can_be_asked(chat: Chat, home: Path) -> None:
    done = chat("One?", "/delete", "/delete nosuch")
    assert "lamina conversations delete s --yes" in done.err
    assert "there is no session 'nosuch'" in done.err
    assert names(home) == {"s"}


def test_only_the_last_messages_are_sent_if_asked_for(server: Model, chat: Chat) -> None:
    lines = [f"Message {number}." for number in range(8)]
    done = chat("/last 2", *lines, "/last", options=("--model", "gpt-5"))
    assert "the last 2 messages are sent" in done.out
    assert len(server.requests[-1]["messages"]) < 10
    assert "Message 7." in server.said()
    kept = chat("/last", "/last all", "/last", "/last x", options=())
    assert kept.out.startswith("the last 2 messages are sent")
    assert "all messages are sent; /last N" in kept.out
    assert "'x' is not a number" in kept.err


@pytest.mark.usefixtures("server")
def test_a_sealed_store_takes_one_flag_and_shows_nothing_on_disk(home: Path) -> None:
    options = ("--model", "gpt-5", "--conversation", "diary", "--sealed", "--folder", home / "notes")
    lines = "My secret is plum.\nremember that I like figs\n"
    assert run("chat", *options, given=lines.encode()).code == 0
    again = run(
        "chat", "--conversation", "diary", "--sealed", "--folder", home, given=b"/search plum\n/memory\n"
    )
    assert "My secret is plum." in again.out
    assert "I like figs" in again.out
    [key_file] = (home / "conf" / "lamina" / "keys").iterdir()
    assert key_file.stat().st_mode & 0o077 == 0
    files = [path for path in home.rglob("*") if path.is_file() and "notes" not in path.parts]
    assert any(path.name == "sealed.db" for path in files)
    for path in files:
        content = path.read_bytes()
        assert not [word for word in (b"plum", b"figs", b"diary") if word in content], path
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


def test_the_key_is_kept_in_the_keyring_of_the_system(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[tuple[str, str], str] = {}
    keyring = types.ModuleType("keyring")
    vars(keyring).update(
        get_keyring=lambda: types.SimpleNamespace(priority=5),
        get_password=lambda service, user: kept.get((service, user)),
        set_password=lambda service, user, text: kept.__setitem__((service, user), text),
    )
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    address = sealed_address("", Settings())
    first = find_or_make_key(address)
    again = find_or_make_key(address)
    assert (first.new, again.new, first.key) == (True, False, again.key)
    assert first.where == "in the system's keyring"
    assert len(kept) == 1
    assert not key_path(address).exists()
    vars(keyring)["get_keyring"] = lambda: types.SimpleNamespace(priority=0)  # one that keeps nothing
    assert find_or_make_key(f"{home}/other.db").where == f"in {key_path(f'{home}/other.db')}"


def test_a_picture_is_sent_as_such(server: Model, chat: Chat, home: Path) -> None:
    (home / "notes" / "sky.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    chat("What is on @sky.png?")
    parts = server.requests[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts if isinstance(part, dict)] == ["text", "image_url"]
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.usefixtures("server")
def test_what_is_kept_of_a_route_survives_a_copy(chat: Chat, home: Path) -> None:
    chat("One?", options=("--model", "local-7b", "--window", "9000"))
    assert run("conversations", "copy", f"{home}/copy.db", "--store", f"{home}/c.db").code == 0
    place = ("--conversation", "s", "--store", f"{home}/copy.db", "--folder", home / "notes")
    assert run("chat", *place, given=b"Two?\n").out == "Yes.\n"


def test_a_message_keeps_its_role_and_text_whatever_was_done_to_it(
    server: Model, chat: Chat, home: Path
) -> None:
    chat("One?", "/retry", "/edit Two?", "/rename t", "/last 3", "Three?")

    async def read() -> list[tuple[Role, str]]:
        async with open_store(f"{home}/c.db") as store:
            assert (await store.read(Where("", "t"), last=0)).head.count
            async with Session.open(store, "t", model="gpt-5") as session:
                return [(line.role, line.text) for line in session.dialogue()]

    yes = (Role.ASSISTANT, "Yes.")
    assert anyio.run(read) == [(Role.USER, "Two?"), yes, (Role.USER, "Three?"), yes]
    assert json.dumps(server.requests[-1]["messages"]).count("Three?") == 1


def test_a_pin_goes_to_the_copy_that_is_sent_in_full_and_stays(server: Model, chat: Chat) -> None:
    chat("one @plan.md", "two @plan.md", "/pin plan.md", "three")
    assert chat("/pin").out == "plan.md\n"
    chat("/unpin plan.md", "four")
    for number in range(4):
        assert server.said(number).count("Paint the fence green.") == 1


def test_old_answers_are_summarised_pinned_and_recalled(server: Model, chat: Chat, home: Path) -> None:
    async def play() -> None:
        policy = Policy(recall="tool")
        async with Session.open(home / "c.db", "s", model="gpt-5", policy=policy) as session:
            for number in range(12):
                await session.ask(f"Question {number}?")
                await session.record(f"Answer {number}. {f'It rains in the hills of part {number}. ' * 20}")

    def script(body: dict[str, Any]) -> str:
        asked = str(body["messages"][-1]["content"])
        return "It rains in the hills of parts 0 to 6; each answer says so." if "ummar" in asked else "Yes."

    anyio.run(play)
    server.script = script
    shown = chat("/compact keep the hills", "/why").out
    assert "keep the hills" in server.said()
    key = next(line.split()[0] for line in shown.splitlines() if "covered by" in line)
    done = chat(f"/recall {key}", f"/pin {key}", "Is it there?", f"/unpin {key}", "/pin")
    assert "Answer 0. It rains" in done.out
    assert "Answer 0. It rains" in server.said()
    assert "Answer 1. It rains" not in server.said()
    told = done.out + done.err
    assert [each in told for each in ("no cut shortens it", "may be shortened", "nothing is pinned")] == [
        True
    ] * 3


def test_a_digest_can_be_looked_at_by_its_key(server: Model, chat: Chat) -> None:
    server.script = lambda _: "The depot keeps parcels until the driver comes. " * 90
    options = ("--model", "gpt-5", "--window", "4000")
    shown = chat(
        *(f"Question {number}: where is depot {number}?" for number in range(8)), "/why", options=options
    )
    key = re.search(r"^(fold-[a-z0-9]+)", shown.out, re.MULTILINE)
    assert key is not None
    looked_at = chat(f"/recall {key[1]}", f"/why {key[1]}", f"/recall {key[1][:12]}…", options=())
    assert looked_at.err.count("nothing here is called") == 0
    assert looked_at.out.count("Question 0: where is depot 0?") >= 2


def test_passages_that_were_found_go_out_again_with_an_edited_message(server: Model, chat: Chat) -> None:
    chat("/search requests a minute", "/attach 1", "/search fence", "/attach 1", "What?", "/edit What now?")
    assert "At most 20 requests" in server.said()
    assert "Paint the fence green." in server.said()


AGENTS = """
[reviewer]
about = "reads changes"
persona = "You review changes."

[poet]
about = "writes verse"
persona = "You answer in verse."
model = "gpt-5-mini"
"""


@pytest.mark.usefixtures("home")
def test_a_named_agent_answers_from_the_next_message_on_and_is_kept(server: Model, chat: Chat) -> None:
    file = config_folder() / "agents.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(AGENTS, encoding="utf-8")
    shown = chat("/agent", "/agent reviewer", "Hello.", "/agent", "/agent nobody", "/agent poet", "And you?")
    assert shown.out.startswith("  poet      writes verse\n  reviewer  reads changes\n")
    assert "* reviewer  reads changes\n" in shown.out
    assert "there is no agent 'nobody'" in shown.err
    assert "You review changes." in server.said(0)
    assert "You answer in verse." in server.said(1)
    assert server.requests[1]["model"] == "gpt-5-mini"
    chat("And now?", options=())
    assert "You answer in verse." in server.said()
    file.unlink()
    gone = chat("Still there?", "/agent", options=())
    assert gone.code == 0, "it goes on without the agent"
    assert "there is none; docs/agent.md says how" in gone.out
    file.write_text(AGENTS, encoding="utf-8")
    chat("/agent none", "Who are you?", options=())
    assert "You are a careful coworker" in server.said()
    assert chat("/agent", options=()).out.startswith("  poet")


@pytest.mark.usefixtures("server")
def test_a_conversation_may_be_called_agents(chat: Chat) -> None:
    chat("Hello.", session="agents")
    again = chat("And now?", "/sessions", session="agents")
    assert again.code == 0
    assert "agents" in again.out
