"""Source system 001: chats kept as Markdown notes (S1-50 to S1-56)."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from examples.importers.chat_folder import file_name, load, save
from examples.importers.chat_page import (
    MarkdownChat,
    Mention,
    format_messages,
    list_messages,
    mentions,
    note_path,
    read,
    rebuild,
    write,
)
from examples.importers.tagged_context import unwrap_tag
from lamina import Segment
from lamina.core import text_of
from lamina.segments import assistant, note, url, user, web_tab

EPOCH = 1_729_873_880_000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def texts(chat: MarkdownChat) -> list[tuple[str, str]]:
    return [(s.role.value, text_of(s.parts)) for s in chat.log]


FOUR = """**user**: Hello
[Timestamp: 2024/10/25 16:31:20]

**ai**: Hi there!
[Timestamp: 2024/10/25 16:31:25]

**user**: How are you?
[Context: Notes: a/b.md, c.md | URLs: https://x.org | Web Tabs: https://t.org]
[Timestamp: 2024/10/25 16:32:00]

**ai**: I'm fine.
[Timestamp: Unknown time]"""


def test_s1_50_four_messages_to_the_letter() -> None:
    log = [
        user("Hello", at="2024/10/25 16:31:20"), assistant("Hi there!", at="2024/10/25 16:31:25"),
        note("a/b.md", "x"), note("c.md", "y"), url("https://x.org", "z"), web_tab("https://t.org", "w"),
        user("How are you?", at="2024/10/25 16:32:00"), assistant("I'm fine."),
    ]  # fmt: skip
    assert format_messages(list_messages(log)) == FOUR
    assert [s.at for s in read(FOUR).log] == [
        "2024/10/25 16:31:20", "2024/10/25 16:31:25", "2024/10/25 16:32:00", "",
    ]  # fmt: skip


def test_s1_50_front_matter_is_quoted_and_comes_back() -> None:
    chat = MarkdownChat(
        log=(user("a"),), epoch=EPOCH, model='m "x" \\ y', topic="T: 1", accessed=5, tags=("t",)
    )
    page = write(chat)
    assert page.startswith(
        f'---\nepoch: {EPOCH}\nlastAccessedAt: 5\nlamina: 1\nmodelKey: "m \\"x\\" \\\\ y"\n'
    )
    assert read(page) == chat


def test_s1_51_consecutive_users_and_blank_lines_in_an_answer() -> None:
    page = (
        "**user**: one\n[Timestamp: 1]\n\n**user**: two\n[Timestamp: 2]\n\n"
        "**ai**: line\n\n- item\n\nlast\n[Timestamp: 3]\n\n**user**: three\n\n**ai**: four"
    )
    assert texts(read(page)) == [
        ("user", "one"), ("user", "two"), ("assistant", "line\n\n- item\n\nlast"), ("user", "three"),
        ("assistant", "four"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "named",
    [
        [("note", "folder/note.md")],
        [("url", "https://example.org/a?b=1")],
        [("tag", "#one"), ("tag", "#two")],
        [("folder", "Projects/2024")],
        [("web_tab", f"https://tab{i}.org") for i in range(3)],
        [("note", "a.md"), ("url", "https://x"), ("web_tab", "https://t"), ("tag", "#t"), ("folder", "f")],
        [],
    ],
)
def test_s1_52_what_a_message_refers_to_comes_back(named: list[tuple[str, str]]) -> None:
    given = user("q", meta={"mentions": [list(pair) for pair in named]} if named else {})
    page = format_messages(list_messages([given]))
    assert read(page).log == read(write(MarkdownChat(log=(given,)), hidden=False)).log == (given,)
    assert mentions(read(page).log[0]) == tuple(Mention(*pair) for pair in named)
    assert ("[Context: " in page) is bool(named)


@pytest.mark.anyio
async def test_s1_53_names_without_a_path_are_resolved_where_there_is_one_such_note() -> None:
    known = ("a/unique.md", "a/twice.md", "b/twice.md")
    assert [note_path(name, known) for name in ("unique", "a/twice.md", "twice", "gone")] == [
        "a/unique.md", "a/twice.md", None, None,
    ]  # fmt: skip
    page = "**user**: q\n[Context: Notes: unique, twice, gone | URLs: https://x]\n[Timestamp: 1]"

    async def look(mention: Mention) -> list[Segment]:
        path = note_path(mention.name, known) if mention.sort == "note" else None
        return [note(path, "text")] if path else []

    log = await rebuild(read(page).log, look)
    assert [s.key for s in log] == ["a/unique.md", ""]
    assert mentions(log[1]) == (
        Mention("note", "twice"),
        Mention("note", "gone"),
        Mention("url", "https://x"),
    )


def test_s1_54_a_name_is_made_of_the_first_words() -> None:
    assert file_name("Check [[My Note]] and path [ref] :: test \\\0", EPOCH) == (
        "Check_My_Note_and_path_ref_test@20241025_163120.md"
    )
    assert file_name("[[]] [] {} :: :: \\", EPOCH) == "Untitled_Chat@20241025_163120.md"
    assert file_name("a b c d e f g h i j k l", EPOCH) == "a_b_c_d_e_f_g_h_i_j@20241025_163120.md"
    for words in ("Привет мир " * 20, "🙂🙃 " * 40, "漢字かな交じり文 " * 20, "x" * 400):
        name = file_name(words, EPOCH)
        assert re.fullmatch(r".+@20241025_163120\.md", name)
        assert 90 <= len(name.encode()) <= 100
    assert len(file_name("x" * 400, EPOCH).encode()) == 100


@pytest.mark.anyio
async def test_s1_54_nothing_said_is_nothing_written(tmp_path: Path) -> None:
    assert await save(MarkdownChat(log=(note("a.md", "x"),)), tmp_path / "chats") is None
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a test may look


@pytest.mark.anyio
@pytest.mark.parametrize("kept_as", [f"epoch: {EPOCH}\n", f'epoch: "{EPOCH}"\n'])
async def test_s1_54_a_second_save_updates_the_same_file_and_its_topic_stays(
    tmp_path: Path, kept_as: str
) -> None:
    log = [user("Hello"), assistant("Hi")]
    first = await save(
        MarkdownChat(log=tuple(log), epoch=EPOCH, topic="Greetings", accessed=7), tmp_path / "a" / "b"
    )
    assert first
    assert first.name == "Greetings@20241025_163120.md"
    first.write_text(first.read_text("utf-8").replace(f"epoch: {EPOCH}\n", kept_as), "utf-8")
    again = await save(MarkdownChat(log=(*log, user("More")), epoch=EPOCH), tmp_path / "a" / "b")
    assert again == first
    chat = await load(first)
    assert (len(chat.log), chat.topic, chat.accessed) == (3, "Greetings", 7)
    assert [path.name for path in first.parent.iterdir()] == [first.name]


@pytest.mark.anyio
async def test_s1_54_a_name_that_the_disk_refuses_is_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def refuse(page: Any, place: Any) -> None:
        if "Hello" in str(place):
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        link(page, place)

    monkeypatch.setattr(os, "link", refuse)
    path = await save(MarkdownChat(log=(user("Hello"),), epoch=EPOCH), tmp_path)
    assert path == tmp_path / f"chat-{EPOCH}.md"


def test_s1_55_a_page_without_messages_is_an_empty_chat() -> None:
    page = "---\nepoch: soon\nusage: {broken\ntags:\n---\n\nnothing said"
    assert read(page) == MarkdownChat(tags=())
    assert read(page.replace("epoch: soon", "projectId: p")).project == "p"
    assert read(FOUR) == read(FOUR)


def test_s1_56_the_last_message_of_a_wrapper_is_the_message() -> None:
    wrapped = "notes say <user-message>not this</user-message>\n<user-message>\nthis one\n</user-message>\n\n"
    assert unwrap_tag(wrapped, "user-message") == "this one"
    assert unwrap_tag(f"{wrapped}trailing", "user-message") == "this one"
    for text in ("<user-message>open", "plain", "</user-message>", "</user-message><user-message>"):
        assert unwrap_tag(text, "user-message") == text


# what goes wrong there and must not here


@pytest.mark.parametrize(
    "text", ["a\n**user**: not I", "a\n**ai**: nor I\n[Timestamp: x]", "[Context: Notes: a]", " b\n"]
)
def test_a_message_that_looks_like_another_is_one_message(text: str) -> None:
    log = (user(text), assistant(text))
    assert read(write(MarkdownChat(log=log), hidden=False)).log == log


@pytest.mark.parametrize(
    "path", ["a, b.md", "a | b.md", "a].md", "a\nb.md", "[Timestamp: x]", " a ", "a\\, b"]
)
def test_a_path_that_looks_like_a_list_is_one_path(path: str) -> None:
    log = (user("q", meta={"mentions": [["note", path], ["url", path]]}),)
    assert read(write(MarkdownChat(log=log), hidden=False)).log == log
