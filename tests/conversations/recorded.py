"""Conversations as every door leaves them in a store, with a secret in a prompt, a result and an answer."""

from __future__ import annotations

import gzip
import json
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.conversations.addresses import Group, address_workspace, enlist, name_page
from lamina.conversations.recall_loop import RecallExchange, RecallPlace
from lamina.conversations.record import Answered, CutNote, SentRequest, digest_body
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import (
    LINK,
    ConversationState,
    answer_place,
    conversation_place,
    find_title,
)
from lamina.core import Cut
from lamina.core.hashing import handle
from lamina.core.recall import identify_segments
from lamina.core.values import Fold, Ledger, Segment
from lamina.dialects import DIALECTS, Usage
from lamina.formats.codec import encode
from lamina.segments import assistant, call, result, user
from lamina.sessions import Session
from lamina.stores import Store, Where

PROMPT = "pw-prompt-7c1e"
RESULT = "pw-result-91aa"
ANSWER = "pw-answer-b0f4"
SECRETS = (PROMPT, RESULT, ANSWER)

DAY = 86_400
NOON = 1_790_000_000


def list_messages() -> list[dict[str, Any]]:
    """A talk in OpenAI's form, each message of which is long enough to be a piece of its own."""
    filling = "and so on, " * 40
    function = {"name": "read_file", "arguments": '{"path": "src/app.py"}'}
    return [
        {"role": "user", "content": f'Log in with "{PROMPT}",\nthen read the file. {filling}'},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": f"key = '{RESULT}' # {filling}"},
        {"role": "assistant", "content": f"The file says {ANSWER}. {filling}"},
        {"role": "user", "content": f"Thank you, nothing else. {filling}"},
    ]


def write_stream(text: str) -> bytes:
    """An answer as a stream whose events split every word."""
    events = [
        {"id": "a", "choices": [{"index": 0, "delta": {"content": text[at : at + 3]}}]}
        for at in range(0, len(text), 3)
    ]
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


def write_answer(text: str) -> bytes:
    return json.dumps(
        {"id": "a", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    ).encode()


def make_ledger(messages: list[dict[str, Any]]) -> Ledger:
    """A ledger with a digest of everything that quotes the secrets in part."""
    log = DIALECTS["openai_chat"].wire.parse({"model": "gpt-5", "messages": messages}).log
    refs = tuple(each.ref for each in identify_segments(log))
    text = f"The user gave {PROMPT}."
    notes = f"The tool said {RESULT} and the model {ANSWER}."
    cut = Cut(number=1, reason="over the trigger", before=900, after=300)
    return Ledger(cuts=(cut,), folds=(Fold(key="fold-1", covers=refs[:4], text=text, notes=notes, cut=1),))


async def record_talk(
    store: Store,
    *,
    workspace: str = "default",
    name: str = "claude-code-5f0c1b7a",
    keep: str = "all",
    packed: bool = False,
    updated: int = NOON,
    door: str = "gateway",
    opening: str = "hi",
    parent: str = "",
) -> None:
    """A conversation of four requests; before the last one a cut was made."""
    messages = list_messages()
    writer = RecordWriter()
    ledger = make_ledger(messages)
    answers = [
        write_answer("Reading it."),
        write_stream(f"The file says {ANSWER}."),
        write_answer(f"The file says {ANSWER}."),
        write_stream("You are welcome."),
    ]
    log = DIALECTS["openai_chat"].wire.parse({"model": "gpt-5", "messages": messages}).log
    keeps_bodies = keep == "all"
    for number, count in enumerate((1, 3, 3, 5)):
        came = json.dumps({"model": "gpt-5", "messages": messages[:count]}).encode()
        sent = came
        own_ledger = None
        cut = None
        if number == 3:
            [fold] = ledger.folds
            digest = [
                {"role": "user", "content": f"[earlier] {fold.text}"},
                {"role": "assistant", "content": f"[notes] {fold.notes}"},
            ]
            sent = json.dumps({"model": "gpt-5", "messages": [*digest, messages[4]]}).encode()
            own_ledger = ledger
            cut = CutNote(number=1, reason="over the trigger", before=900, after=300, lowered=4)
        request = SentRequest(
            id=f"r{number}",
            at=float(updated - 60 + number),
            door=door,
            dialect="openai_chat",
            model="gpt-5",
            tokens=100 * count,
            size=len(sent),
            digest=digest_body(sent),
            epoch=int(number == 3),
            cut=cut,
        )
        writer.add_sent(
            request,
            body=sent if keeps_bodies else None,
            came=came if keeps_bodies and came != sent else None,
            ledger=own_ledger,
        )
        answer_body = answers[number]
        encoding = ""
        if packed:
            answer_body = gzip.compress(answer_body)
            encoding = "gzip"
        writer.add_answer(
            Answered(
                id=f"r{number}",
                at=float(updated - 59 + number),
                status=200,
                last=1.0,
                encoding=encoding,
                content_type="text/event-stream" if number % 2 else "application/json",
                usage=Usage(input=100 * count, cached=50, output=7),
                account={"dollars": 0.25},
            ),
            body=answer_body if keeps_bodies else None,
        )
    if keep == "lowered":
        for segment in log[:4]:
            writer.add_record(encode(segment))
    [key] = [handle(each.content) for each in identify_segments(log) if RESULT in str(each.segment.parts)]
    function = {"name": "recall", "arguments": json.dumps({"key": key, "find": "key"})}
    asked = {"role": "assistant", "tool_calls": [{"id": "r", "type": "function", "function": function}]}
    recalled = {"role": "tool", "tool_call_id": "r", "content": f"key = '{RESULT}'"}
    state = ConversationState(
        door=door,
        dialect="openai_chat",
        group="session-42",
        chain=_link(opening),
        first_answer=1,
        parent=parent,
        title=find_title(log) if keep != "nothing" else "",
        model="gpt-5",
        ledger=ledger,
        exchanges=(
            RecallExchange(
                place=RecallPlace(turns=1, segments=1, link=b""), view="v", turns=(asked, recalled)
            ),
        ),
        answers=("resp-1", "resp-2"),
        requests=4,
        tokens=300,
        began=updated - 60,
        updated=updated,
        keep=keep,
    )
    listed: dict[str, str] = {}
    await enlist(store, workspace, name, state, listed)
    state = msgspec.structs.replace(state, listed=listed)
    for answer_id in state.answers:
        await store.append(answer_place(workspace, answer_id), [name.encode()])
    await store.append(conversation_place(workspace, name), writer.encode(), state=msgspec.json.encode(state))


def _link(opening: str) -> bytes:
    """The chain of a request that says nothing else."""
    return blake2b(opening.encode(), digest_size=LINK).digest()


def find_page(workspace: str = "default", opening: str = "hi") -> Where:
    """Where conversations are listed that begin with these words."""
    digests = ConversationState(chain=_link(opening), first_answer=1).digests()
    group = Group(workspace, "session-42", "openai_chat")
    return Where(address_workspace(workspace), name_page(group, digests.opening_address))


async def list_members(store: Store, workspace: str = "default", opening: str = "hi") -> set[str]:
    """The names of the conversations that are listed under an opening."""
    state = (await store.read(find_page(workspace, opening), last=0)).head.state
    return {entry[0] for entry in json.loads(state or b"{}").get("entries", [])}


def list_segments() -> list[Segment]:
    return [
        user(f"Log in with {PROMPT}."),
        assistant("I read the file."),
        call("read_file", {"path": "src/app.py"}, id="c1"),
        result(f"key = '{RESULT}'", id="c1", name="read_file"),
        assistant(f"The file says {ANSWER}."),
    ]


async def keep_session(store: Store, *, workspace: str = "", name: str = "support-42") -> None:
    """A session of two turns."""
    async with Session.open(store, name, workspace=workspace, model="gpt-5") as session:
        await session.add(*list_segments())
        await session.ask("Anything else?")
