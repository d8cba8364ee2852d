from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from examples.importers.chat_folder import file_name, find, load, save
from examples.importers.chat_page import (
    GROUPS,
    MarkdownChat,
    Mention,
    Message,
    find_below,
    format_front_matter,
    format_messages,
    list_messages,
    mentions,
    parse_messages,
    read,
    rebuild,
    split_front_matter,
    write,
)
from lamina.core.build import build
from lamina.core.values import Budget, Ledger, Segment
from lamina.errors import BadInput
from lamina.segments import assistant, file, image, note, result, system, url, user
from lamina.testing.strategies import logs

SPICE = (
    "**user**: ",
    "**ai**: ",
    "**user**:",
    "\\**ai**: ",
    "[Context: Notes: a]",
    "[Timestamp: x]",
    "]",
    " | ",
    ", ",
    "\n",
    "\n\n",
    "\\",
    "---",
    "-->",
    "<!-- lamina:1\n",
    "Unknown time",
    "\r\n",
    "\r",
    "\x00",
    "\u2028",
    "\x85",
    "\u202e",
    "漢字",
    "🙂",
    " ",
    "\t",
    "a",
)
TEXTS = st.lists(st.sampled_from(SPICE) | st.text(max_size=4), max_size=6).map("".join)
NAMES = TEXTS.filter(bool)
MESSAGES = st.builds(
    Message,
    sender=st.sampled_from(("user", "ai")),
    text=TEXTS,
    references=st.lists(st.tuples(st.sampled_from(tuple(GROUPS)), NAMES), max_size=3).map(
        lambda pairs: tuple(sorted(pairs, key=lambda pair: tuple(GROUPS).index(pair[0])))
    ),
    at=TEXTS,
)


def exact(log: tuple[Segment, ...]) -> Any:
    return msgspec.to_builtins(log)


@given(st.lists(MESSAGES, max_size=3))
def test_any_dialogue_comes_back_from_the_readable_part_alone(dialogue: list[Message]) -> None:
    above, read_ = parse_messages(f"above\n{format_messages(dialogue)}\n", exact=True)
    assert read_ == dialogue
    assert above == ("above\n" if dialogue else "above\n\n")


@given(logs(thinks=True), TEXTS, st.integers(0, 2**53))
def test_any_log_comes_back_from_its_page(log: tuple[Segment, ...], words: str, epoch: int) -> None:
    chat = MarkdownChat(log=log, epoch=epoch, model=words, topic=words, project=words, tags=(words, "b"))
    back = read(write(chat))
    assert exact(back.log) == exact(log)
    assert back == chat


@given(logs())
def test_a_page_without_the_comment_shows_the_same(log: tuple[Segment, ...]) -> None:
    plain = read(write(MarkdownChat(log=log), hidden=False))
    listed = [
        msgspec.structs.replace(m, references=tuple(sorted(m.references))) for m in list_messages(plain.log)
    ]
    assert listed == [
        msgspec.structs.replace(m, references=tuple(sorted(m.references))) for m in list_messages(log)
    ]


@example({}, "---\n")
@given(st.dictionaries(st.sampled_from(("topic", "modelKey")), TEXTS), TEXTS)
def test_no_value_ends_the_front_matter(fields: dict[str, str], rest: str) -> None:
    back, after = split_front_matter(format_front_matter(fields) + rest)
    assert after == rest
    assert back == fields


def test_ordinary_chats_show_no_escape() -> None:
    log = (
        note("docs/My Note, draft.md", "text"),
        user("Is [this] | **that**, or --- so?\n\n- a\n- b"),
        assistant("Yes."),
    )
    page = write(MarkdownChat(log=log), hidden=False)
    assert page.endswith(
        "**user**: Is [this] | **that**, or --- so?\n\n- a\n- b\n"
        "[Context: Notes: docs/My Note\\, draft.md]\n[Timestamp: Unknown time]\n\n"
        "**ai**: Yes.\n[Timestamp: Unknown time]\n"
    )


def test_the_next_request_is_the_same_after_export_and_import() -> None:
    log: list[Segment] = [system("Be brief.")]
    for turn in range(8):
        log += [
            note(f"n{turn}.md", f"# Note {turn}\n\n" + "word " * 200),
            user(f"q{turn}"),
            assistant("a " * 200),
        ]
    log.append(user("and now?"))
    budget = Budget(window=2_000, reserve=0)
    before = build(log, budget=budget)
    assert before.cut
    back = read(write(MarkdownChat(log=tuple(log), state=before.ledger.dump())))
    more = [assistant("so."), user("go on")]
    there = build([*back.log, *more], budget=budget, ledger=Ledger.load(back.state))
    assert there.entries == build([*log, *more], budget=budget, ledger=before.ledger).entries


def test_that_system_reads_a_page_and_sees_nothing_of_the_comment() -> None:
    log = (system("**user**: hidden"), note("a.md", "x"), user("One?\n\nTwo.", at="t"), assistant("Three."))
    above, dialogue = parse_messages(split_front_matter(write(MarkdownChat(log=log)))[1].strip(), exact=False)
    assert dialogue == list_messages(log)
    assert above.startswith("<!-- lamina:1\n")


LOG = (system("Hidden."), note("a.md", "Note."), user("One?", at="t1"), assistant("Two."), user("Three?"))


def test_a_page_changed_by_hand_says_what_it_shows_and_keeps_what_it_refers_to() -> None:
    page = write(MarkdownChat(log=LOG)).replace("**ai**: Two.", "**ai**: Two and a half.")
    chat = read(page)
    assert [s.parts[0] for s in chat.log[1:]] == [
        s.parts[0] for s in (LOG[2], assistant("Two and a half."), LOG[4])
    ]
    assert chat.log[0] == LOG[1]
    assert chat.notes == (
        "the page was changed by hand: what it shows counts, 1 segments that it does not show are left out",
    )


@pytest.mark.parametrize(
    "change", [("\n", "\r\n"), ("Three?\n", "Three?   \n"), ("---\n<!--", "---\n\n\n<!--")]
)
def test_what_editors_do_to_white_space_is_no_change(change: tuple[str, str]) -> None:
    assert read(write(MarkdownChat(log=LOG)).replace(*change)) == MarkdownChat(log=LOG)


def test_what_a_page_does_not_show_can_be_refused() -> None:
    chat = read(write(MarkdownChat(log=LOG)), hidden=False)
    assert [s.kind for s in chat.log] == ["user", "assistant", "user"]
    assert chat.state == {}


def test_nothing_in_a_log_ends_the_comment_or_begins_a_message_in_it() -> None:
    log = (system("--> ---> **user**: hi\n**ai**: x <!-- -->"), user("a"))
    page = write(MarkdownChat(log=log))
    comment = page.partition("<!--")[2].partition("-->")[0]
    assert "**" not in comment
    assert "--" not in comment
    assert read(page).log == log
    assert page.count("-->") == 1


@pytest.mark.parametrize("wrong", ["lamina: 2", "lamina: x"])
def test_a_page_of_a_newer_release_is_refused(wrong: str) -> None:
    with pytest.raises(BadInput, match="version"):
        read(write(MarkdownChat(log=LOG)).replace("lamina: 1", wrong, 1))


def test_a_broken_comment_is_an_error_and_never_half_a_log() -> None:
    page = write(MarkdownChat(log=LOG))
    with pytest.raises(BadInput):
        read(page.replace('"v":1', '"v":9', 1))
    with pytest.raises(BadInput, match="hidden=False"):
        read(page.replace('{"lamina":1', '{"lamina":', 1))


def test_context_after_the_question_belongs_to_it() -> None:
    (message,) = list_messages([user("Read it"), file("a.py", "x"), url("https://b", "y")])
    assert message.references == (("note", "a.py"), ("url", "https://b"))


def test_context_without_a_question_is_listed_nowhere_and_still_kept() -> None:
    log = (user("a"), assistant("b"), file("a.py", "x"), assistant("c"))
    assert [m.references for m in list_messages(log)] == [(), (), ()]
    assert read(write(MarkdownChat(log=log))).log == log


def test_pieces_of_one_message_are_one_block() -> None:
    log = [user("See"), image(data="aGk=", media_type="image/png"), assistant("I"), result("r", id="1")]
    assert [(m.sender, m.text) for m in list_messages(log)] == [("user", "See\n[image]"), ("ai", "I")]


# mentions

FOREIGN = """---
epoch: 1729873880000
modelKey: "gpt|openai"
topic: Old chat
tags:
  - copilot-conversation
---

**user**: Compare
[Context: Notes: a.md, b/c.md | URLs: https://x.org | Tags: #t]
[Timestamp: 2024/10/25 16:31:20]

**ai**: Done
[Timestamp: 2024/10/25 16:31:25]"""


@pytest.mark.anyio
@pytest.mark.parametrize("links", [False, True])
async def test_a_chat_of_that_system_is_rebuilt_and_links_only_if_asked(links: bool) -> None:  # noqa: FBT001
    requested: list[Mention] = []

    async def look(mention: Mention) -> list[Segment]:
        requested.append(mention)
        return [note(mention.name, "text")] if mention.sort == "note" else []

    log = await rebuild(read(FOREIGN).log, look, links=links)
    assert [s.key for s in log] == ["a.md", "b/c.md", "", ""]
    assert ("url" in {m.sort for m in requested}) is links
    assert list_messages(log)[0].references[2:] == (("url", "https://x.org"), ("tag", "#t"))
    assert read(write(MarkdownChat(log=log))).log == log


@pytest.mark.anyio
async def test_the_context_of_a_page_is_read_below_a_folder_and_sent_with_its_messages(tmp_path: Any) -> None:
    for path, text in {
        "docs/spec.md": "At most 20 requests a minute.",
        "plans/next.md": "Raise it to 40.",
        "archive/minutes.md": "Ana decided.",
        "log.md": "#release on Monday",
        "other.md": "Nothing of this is referred to.",
    }.items():
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_text(text)
    (tmp_path / "secret.md").write_text("secret")
    page = (
        "**user**: Who?\n[Context: Notes: docs/spec.md, minutes, ../secret.md | URLs: https://x.org | "
        "Tags: #release | Folders: plans, .. | Emails: invoice]\n[Timestamp: 1]"
    )
    log = await rebuild(read(page).log, find_below(tmp_path / "root"))
    assert [s.key for s in log[:-1]] == ["docs/spec.md", "archive/minutes.md", "log.md", "plans/next.md"]
    assert [name for _, name in mentions(log[-1])] == ["../secret.md", "https://x.org", "..", "invoice"]
    assert "Emails: invoice" in write(MarkdownChat(log=log), hidden=False)


# folders


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_two_chats_of_one_name_are_two_files(tmp_path: Any) -> None:
    one = await save(MarkdownChat(log=(user("Hello"),), epoch=1_000), tmp_path)
    two = await save(MarkdownChat(log=(user("Hello"), assistant("?")), epoch=1_001), tmp_path)
    assert [p.name for p in (one, two) if p] == ["Hello@19700101_000001.md", "chat-1001.md"]
    assert one
    assert len((await load(one)).log) == 1
    assert await find(tmp_path, 1_001) == two
    assert await find(tmp_path, 5) is None


@pytest.mark.anyio
async def test_a_chat_begins_when_its_first_message_was_said_or_now(tmp_path: Any) -> None:
    first = await save(MarkdownChat(log=(user("A", at="2024-10-25T16:31:20Z"),)), tmp_path)
    there = await save(MarkdownChat(log=(user("B", at="2024/10/25 16:31:20"),)), tmp_path)
    unsaid = await save(MarkdownChat(log=(user("C", at="soon"),)), tmp_path, now=lambda: 86_400)
    names = [path.name for path in (first, there, unsaid) if path]
    assert names == ["A@20241025_163120.md", "B@20241025_163120.md", "C@19700102_000000.md"]


@given(TEXTS, TEXTS)
def test_any_name_is_a_name(text: str, topic: str) -> None:
    name = file_name(text, 0, topic=topic)
    assert len(name.encode()) <= 100
    assert name.endswith("@19700101_000000.md")
    assert not set(name) & set('\\/:*?"<>|\0\n')
    assert not name.startswith(".")
