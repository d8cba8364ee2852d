"""What messages of an imported page refer to: kept with them, and brought back before the first request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lamina.core import text_of
from lamina.core.values import Segment
from lamina.formats.markdown import MarkdownChat, Mention, read, write
from lamina.segments import note, url
from lamina.sessions import Mentioned, Session
from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, list_texts, opened, wire

PAGE = """---
epoch: 1729873880000
modelKey: "gpt-5|openai"
tags:
  - copilot-conversation
---

**user**: What does the spec allow?
[Context: Notes: docs/spec.md | URLs: https://x.org | Folders: plans]
[Timestamp: 2024/10/25 16:31:20]

**ai**: 20 requests a minute.
[Timestamp: 2024/10/25 16:31:30]

**user**: Who decided that?
[Context: Notes: minutes | Tags: #release]
[Timestamp: 2024/10/25 16:32:20]

**ai**: Ana did.
[Timestamp: 2024/10/25 16:32:30]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {
        "docs/spec.md": "At most 20 requests a minute.",
        "plans/next.md": "Raise it to 40.",
        "archive/minutes.md": "Ana decided.",
        "log.md": "#release on Monday",
        "other.md": "Nothing of this is referred to.",
    }
    for path, text in texts.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


async def imported(store: MemoryStore) -> None:
    """Bring the page into a store, as `lamina conversations import` does."""
    async with opened(store, model="gpt-5") as session:
        await session.add(*read(PAGE).log)


def keys(session: Session) -> list[str]:
    return [one.key or text_of(one.parts) for one in session.log]


@awaited
async def test_an_imported_page_keeps_what_its_messages_refer_to() -> None:
    store = MemoryStore()
    await imported(store)
    async with opened(store) as session:
        exported = write(MarkdownChat(log=session.log), hidden=False)
    assert "[Context: Notes: docs/spec.md | URLs: https://x.org | Folders: plans]" in exported
    assert "[Context: Notes: minutes | Tags: #release]" in exported


def test_the_context_is_rebuilt_before_the_first_request_and_links_are_left_alone(folder: Path) -> None:
    @awaited
    async def run() -> None:
        store = MemoryStore()
        await imported(store)
        async with opened(store, root=folder) as session:
            await session.ask("And next year?")
            assert keys(session) == [
                "docs/spec.md",
                "plans/next.md",
                "What does the spec allow?",
                "20 requests a minute.",
                "archive/minutes.md",
                "log.md",
                "Who decided that?",
                "Ana did.",
                "And next year?",
            ]
            request = wire(await session.request())
            for text in ("At most 20 requests", "Raise it to 40.", "Ana decided.", "#release on Monday"):
                assert text in request
            assert "Nothing of this" not in request
            assert any("https://x.org" in one for one in session.notes)
            assert list_texts(session)[0] == "What does the spec allow?"
            await session.record("Nobody knows.")
            sent = session.envelope
            assert sent is not None
        (folder / "docs/spec.md").write_text("Changed since.")
        async with opened(store, root=folder) as session:
            again = await session.ask("Still there?")
            assert "Changed since." not in wire(await session.request())
            assert session.report().continues
            assert again.cut is None

    run()


def test_a_request_for_a_chat_that_waits_for_its_answer_is_rebuilt_too(folder: Path) -> None:
    @awaited
    async def run() -> None:
        store = MemoryStore()
        async with opened(store, model="gpt-5") as session:
            await session.add(*read(PAGE).log[:1])
        async with opened(store, root=folder) as session:
            assert "At most 20 requests" in wire(await session.request())

    run()


@awaited
async def test_what_finds_it_may_be_given_and_may_be_asked_for_links() -> None:
    mentions_seen: list[Mention] = []

    async def find(mention: Mention) -> Sequence[Segment]:
        mentions_seen.append(mention)
        if mention.sort == "url":
            return [url(mention.name, "a page")]
        return [note(mention.name, "a note")] if mention.name == "minutes" else []

    store = MemoryStore()
    await imported(store)
    async with opened(store, mentioned=Mentioned(find=find, links=True)) as session:
        await session.ask("And next year?")
        assert "https://x.org" in keys(session)
        assert "minutes" in keys(session)
        assert [mention.sort for mention in mentions_seen] == ["note", "url", "folder", "note", "tag"]
        exported = write(MarkdownChat(log=session.log), hidden=False)
        assert "[Context: Notes: docs/spec.md | URLs: https://x.org | Folders: plans]" in exported


@awaited
async def test_a_finder_that_fails_sinks_no_turn_and_leaves_a_note() -> None:
    async def find(_: Mention) -> Any:
        raise OSError("the disk is gone")

    store = MemoryStore()
    await imported(store)
    async with opened(store, mentioned=Mentioned(find=find)) as session:
        await session.ask("And next year?")
        assert len(session.log) == 5
        assert any("the disk is gone" in one for one in session.notes)


@awaited
async def test_without_anything_to_look_in_a_note_says_what_is_missing() -> None:
    store = MemoryStore()
    await imported(store)
    async with opened(store) as session:
        await session.ask("And next year?")
        assert any("docs/spec.md" in one and "root" in one for one in session.notes)
        await session.record("Nobody knows.")
    async with opened(store) as session:
        await session.ask("And then?")
        assert session.notes == ()


def test_what_a_page_names_outside_of_the_root_is_not_read(folder: Path) -> None:
    @awaited
    async def run() -> None:
        (folder / "secret.md").write_text("secret")
        inner = folder / "docs"
        store = MemoryStore()
        async with opened(store, model="gpt-5") as session:
            page = "**user**: q\n[Context: Notes: ../secret.md | Folders: ..]\n[Timestamp: 1]"
            await session.add(*read(page).log)
        async with opened(store, root=inner) as session:
            await session.ask("And now?")
            assert "secret\\n" not in wire(await session.request())
            assert keys(session) == ["q", "And now?"]

    run()


@awaited
async def test_a_sort_of_context_that_no_one_knows_is_noted_and_stays_on_the_page(tmp_path: Path) -> None:
    """Other programs have sorts of their own, and such a page must not lose them in silence."""
    page = (
        "**user**: Pay it?\n[Context: Notes: gone | Emails: invoice, reminder]\n[Timestamp: Unknown time]\n"
    )
    chat = read(page)
    assert "Emails: invoice, reminder" in write(chat)
    async with opened(MemoryStore(), model="gpt-5", root=tmp_path) as session:
        await session.add(*chat.log)
        await session.build()
        assert (
            "refer to gone, Emails: invoice, Emails: reminder, which was not brought back" in session.notes[0]
        )
