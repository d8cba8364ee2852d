"""Reads what a store keeps: sessions, and conversations that a door has recorded. It never writes.

A gateway records what it lowered, and with `keep = "all"` every request. So a session can be explained in
full, and a recorded conversation by its ledger. What was read is remembered until the store has something
newer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from lamina.context.search.chunks import Chunk, chunks_of, turns_of
from lamina.context.search.index import Hit, Index, open_index
from lamina.conversations.recorded_log import read_recorded_log
from lamina.conversations.store import ConversationState, conversation_workspace, recorded_workspace
from lamina.core.explanation import describe_row, join_folds
from lamina.core.hashing import handle, stem_of
from lamina.core.recall import identify_segments
from lamina.core.values import Ledger, LedgerLine, Ref, Segment
from lamina.core.wording import describe_segment, text_of
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, LaminaError, NotFound, StoreError
from lamina.fitting.recalls import answer_recall_text, recall_text
from lamina.sessions import Session
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store, StoredHead, Where

MOST_HITS = 50
"""Places that one search returns at most."""

MOST_ROWS = 400
"""Lines of one explanation at most, so that it does not fill a window."""

EXCERPT = 600
"""Characters of one place that a search found."""

_HINT = "call explain without a conversation: it lists them"
_SEARCH = "see what search finds"


class LibraryConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was read, and the head of its records then.

    `line` is for a list. `table` explains the last request, and `sentences` single segments of it, by key.
    """

    name: str
    head: StoredHead
    log: tuple[Segment, ...]
    ledger: Ledger
    line: str
    table: str
    sentences: dict[str, str] = {}


class ConversationLibrary:
    """The conversations of one workspace. With `only`, no other one can be seen."""

    def __init__(self, store: Store, index: Index, *, workspace: str = "", only: str = "") -> None:
        self._store = store
        self._index = index
        self._only = only
        self._recorded_in = recorded_workspace(workspace)
        self._workspaces: tuple[str, ...] = (workspace, conversation_workspace(self._recorded_in))
        self._remembered: dict[str, LibraryConversation] = {}
        self._indexed: dict[str, StoredHead] = {}

    async def recall(self, key: str, *, conversation: str = "", start: int = 0, find: str = "") -> str:
        """The text behind a handle, a piece of it from `start` on, or the places where `find` occurs."""
        async for stored in self._read_each(conversation):
            try:
                return answer_recall_text(stored.log, key, ledger=stored.ledger, start=start, find=find)
            except NotFound:
                continue
        raise NotFound(key, hint=_SEARCH)

    async def explain(self, *, conversation: str = "", key: str = "") -> str:
        """What the last request had, and why; one segment of it; or a list of the conversations."""
        if not conversation and not self._only:
            return await self._list_conversations()
        stored = await self._read(conversation)
        if key:
            return _explain_key(stored, key)
        return stored.table

    async def search(self, text: str, *, conversation: str = "", most: int = 10) -> str:
        """The places that answer a text best, each with its conversation and the key for `recall`."""
        if not 1 <= most <= MOST_HITS:
            raise BadInput(f"{most}", place="most", hint=f"give 1 to {MOST_HITS}")
        if not text.strip(" \t\r\n"):
            raise BadInput("it is empty", place="text", hint="give words to look for")
        names: list[str] = []
        async for stored in self._read_each(conversation):
            await self._refresh_index(stored)
            names.append(stored.name)
        hits = await self._index.query(text, most=most, sources=names)
        if not hits:
            return f"Nothing in {count_noun(len(names), 'conversation')} answers to that."
        return "\n\n".join(_write_hit(hit) for hit in hits)

    async def _list_conversations(self) -> str:
        lines: list[str] = []
        for name in await self._list_names():
            try:
                lines.append((await self._read(name)).line)
            except LaminaError as error:
                lines.append(f"{name}: it cannot be read: {error}")
        if not lines:
            return "The store has no conversation yet."
        return "\n".join(lines)

    async def _read_each(self, conversation: str) -> AsyncIterator[LibraryConversation]:
        """The conversation that was asked for, or each that is shown here and can be read.

        A damaged one, or one that a newer release wrote, must not hide all others. `explain` names it.
        """
        if conversation or self._only:
            yield await self._read(conversation)
            return
        for name in await self._list_names():
            try:
                stored = await self._read(name)
            except LaminaError:
                continue
            yield stored

    async def _list_names(self) -> list[str]:
        """The names of all conversations: sessions first, then what other doors have recorded."""
        if self._only:
            return [self._only]
        names: dict[str, None] = {}
        for workspace in self._workspaces:
            async for listed in every_conversation(self._store, workspace):
                names[listed.conversation] = None
        return list(names)

    async def _read(self, conversation: str) -> LibraryConversation:
        """A conversation, read again if it has grown. Raises StoreError if there is none of this name."""
        name = conversation or self._only
        if self._only and name != self._only:
            problem = "this server shows one other conversation"
            raise StoreError(problem, conversation=name, hint=f"leave it out, or say {self._only!r}")
        for workspace in self._workspaces:
            head = (await self._store.read(Where(workspace, name), last=0)).head
            if head.is_empty:
                continue
            remembered = self._remembered.get(name)
            if remembered is None or remembered.head != head:
                if workspace == self._workspaces[0]:
                    remembered = await _read_session(self._store, Where(workspace, name), head)
                else:
                    remembered = await _read_recorded(self._store, self._recorded_in, name, head)
                self._remembered[name] = remembered
            return remembered
        raise StoreError("there is none of this name", conversation=name, hint=_HINT)

    async def _refresh_index(self, stored: LibraryConversation) -> None:
        if self._indexed.get(stored.name) != stored.head:
            await self._index.replace(stored.name, _chunk_log(stored.log))
            self._indexed[stored.name] = stored.head


@asynccontextmanager
async def open_library(
    store: Store, *, workspace: str = "", only: str = ""
) -> AsyncIterator[ConversationLibrary]:
    """A library over a store that is open already. Its search index is in memory."""
    async with open_index() as index:
        yield ConversationLibrary(store, index, workspace=workspace, only=only)


async def _read_session(store: Store, where: Where, head: StoredHead) -> LibraryConversation:
    """A session with the explanation of its last request. The request is built, and not stored."""
    async with Session.open(store, where.conversation, workspace=where.workspace) as session:
        manifest = session.explain()
        sentences: dict[str, str] = {}
        for row in (*join_folds(manifest.rows), *manifest.rows):
            for name in (row.key, row.ref, row.recall):
                sentences[name] = describe_row(row)
        size = f"{count_noun(len(session.log), 'segment')}, {count_noun(len(session.ledger.cuts), 'cut')}"
        return LibraryConversation(
            name=where.conversation,
            head=head,
            log=session.log,
            ledger=session.ledger,
            line=f"{where.conversation}: a session, {size}",
            table="\n".join(_shorten(str(manifest).split("\n"))),
            sentences=sentences,
        )


async def _read_recorded(store: Store, workspace: str, name: str, head: StoredHead) -> LibraryConversation:
    """A conversation that a door has recorded: its state, and what is stored of its texts."""
    recorded = await read_recorded_log(store, workspace, name)
    if recorded is None:
        raise StoreError("there is none of this name", conversation=name, hint=_HINT)
    line = _write_line(name, recorded.state)
    rows = _explain_snapshot(recorded.log, recorded.state.ledger)
    return LibraryConversation(
        name=name,
        head=head,
        log=recorded.log,
        ledger=recorded.ledger,
        line=line,
        table="\n".join(_shorten([line, "", *rows])),
    )


def _explain_key(stored: LibraryConversation, key: str) -> str:
    """Why one segment stands as it does."""
    if key in stored.sentences:
        return stored.sentences[key]
    try:
        size = recall_text(stored.log, key, ledger=stored.ledger).total
    except NotFound:
        raise NotFound(key, hint=_SEARCH) from None
    for each in identify_segments(stored.log):
        if key in (each.ref, handle(each.content), each.segment.key):
            line = _find_line(stored.ledger, each.ref)
            return f"{describe_segment(each.segment)}: {_describe_line(line, size)}"
    return f"{key}: a digest; it stands for {size:,} characters"


def _find_line(ledger: Ledger, ref: Ref) -> LedgerLine | None:
    """What the ledger says about a segment.

    A ref ends with what stands before its segment. A store that has only what was lowered lacks that, so
    there a segment is found by the rest of its ref.
    """
    if ref in ledger.lines:
        return ledger.lines[ref]
    stem = stem_of(ref)
    for other_ref, line in ledger.lines.items():
        if stem_of(other_ref) == stem:
            return line
    return None


def _describe_line(line: LedgerLine | None, size: int) -> str:
    if line is None:
        return f"sent in full, {size:,} characters"
    moment = "when it came"
    if line.cut:
        moment = f"at cut {line.cut}"
    return f"sent as {line.form.value} {moment}, since: {line.why}; {size:,} characters in full"


def _explain_snapshot(log: Sequence[Segment], ledger: Ledger) -> Iterator[str]:
    """The last request of a recorded conversation: its cuts, and what was lowered with its key."""
    for cut in ledger.cuts:
        yield f"cut {cut.number}: {cut.reason}, {cut.before:,} to {cut.after:,} tokens"
    by_stem = {stem_of(each.ref): each for each in identify_segments(log)}
    for ref, line in ledger.lines.items():
        each = by_stem.get(stem_of(ref))
        if each is None:
            yield f"{line.form.value:<8} {line.why}; its text is not stored"
        else:
            what = describe_segment(each.segment)
            yield f'{line.form.value:<8} {what}: {line.why}; recall("{handle(each.content)}")'
    for fold in ledger.folds:
        covered = count_noun(len(fold.covers), "segment")
        yield f'digest   of {covered}, cut {fold.cut}; recall("{fold.key}")'
    if not ledger.lines and not ledger.folds:
        yield "Nothing was lowered: the model saw everything."


def _write_line(name: str, state: ConversationState) -> str:
    """A recorded conversation in a list."""
    cuts = count_noun(len(state.ledger.cuts), "cut")
    moment = datetime.fromtimestamp(state.updated, UTC).strftime("%Y-%m-%d %H:%M")
    requests = count_noun(state.requests, "request")
    door = _DOORS.get(state.door, f"through the door {state.door!r}")
    return f"{name}: {door} to {state.model}, {requests}, {cuts}, last on {moment} UTC"


_DOORS = {
    "": "through the gateway",  # before it wrote its name
    "gateway": "through the gateway",
    "wrap": "through a wrapped client",
    "session": "through a session",
}
"""How requests of each door came, as a list says it."""


def _chunk_log(log: Sequence[Segment]) -> tuple[Chunk, ...]:
    """What a search looks at: what was said, results of tools and attachments, each under its handle."""
    chunks: list[Chunk] = []
    for each in identify_segments(log):
        key = handle(each.content)
        pieces = turns_of([each.segment])
        if not pieces:
            pieces = chunks_of(describe_segment(each.segment), text_of(each.segment.parts))
        chunks += [msgspec.structs.replace(piece, place=key) for piece in pieces]
    return tuple(chunks)


def _write_hit(hit: Hit) -> str:
    chunk = hit.chunk
    who = chunk.speaker or chunk.head
    text = chunk.text
    if len(text) > EXCERPT:
        text = f"{text[:EXCERPT]}…"
    return f'[{hit.source}, {who}, recall("{chunk.place}")]\n{text}'


def _shorten(lines: Sequence[str]) -> list[str]:
    """At most `MOST_ROWS` lines. The last ones stay: they are the newest, and the sums."""
    if len(lines) <= MOST_ROWS:
        return list(lines)
    left_out = len(lines) - MOST_ROWS
    return [lines[0], f"… {left_out:,} older lines are left out", *lines[left_out + 1 :]]
