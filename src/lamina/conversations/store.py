"""Conversations in a store: one layout for every door, so that what one wrote another can read.

    lamina.conversations/WORKSPACE   a conversation: its state, and its record (`conversations.record`)
    lamina.addresses/WORKSPACE       where a request finds its conversation (`conversations.addresses`)
    lamina.answers/WORKSPACE         the conversation of each answer that a provider keeps

A session keeps its log under its own name in the workspace itself, as its caller chose. Its requests are
recorded here, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from math import floor
from time import time

import msgspec

from lamina.conversations.recall_loop import RecallExchange
from lamina.conversations.record import ConversationRecord
from lamina.conversations.request_digests import RequestDigests
from lamina.core.text.characters import split_words
from lamina.core.values import LEDGER_VERSION, Digest, Ledger, Role, Segment, Text
from lamina.dialects.usage import Usage
from lamina.errors import Damaged, advise_on_version
from lamina.stores.paging import every_conversation
from lamina.stores.port import DEFAULT_WORKSPACE, RECORDED, OwnName, Store, Where

CONVERSATIONS = RECORDED
ANSWERS = "lamina.answers/"
"""Begin the names of the workspaces; what follows is the workspace of the caller."""

WORKSPACE = DEFAULT_WORKSPACE
"""The workspace of wrapped clients, of a gateway without access tokens, and of sessions that name none."""

LINK = 16
"""Bytes of one link of a chain."""

TITLE = 120
"""Characters of the first words of a conversation that its state has."""


def recorded_workspace(workspace: str) -> str:
    """The name under which doors record a workspace. One that nobody named is that of the gateway."""
    return workspace or WORKSPACE


def conversation_workspace(workspace: str) -> OwnName:
    """The workspace of a store that holds the conversations of a workspace."""
    return OwnName(f"{CONVERSATIONS}{recorded_workspace(workspace)}")


def conversation_place(workspace: str, name: str) -> Where:
    return Where(conversation_workspace(workspace), name)


def answer_place(workspace: str, answer_id: str) -> Where:
    """Where the name of the conversation is stored that an answer belongs to."""
    return Where(OwnName(f"{ANSWERS}{recorded_workspace(workspace)}"), answer_id)


EXCHANGES = 256
"""How many recalls of one conversation are put back into later requests. The oldest are forgotten first."""

STATE_VERSION = 1


def is_client_id(name: str) -> bool:
    """Whether this is a client's own id of a session, such as `claude-code:5f0c`, and no conversation's name.

    The parent of a sub-agent is an id, and the parent of a fork is a conversation.
    """
    return ":" in name


def began_now() -> float:
    """When a conversation begins, in milliseconds: one that is deleted and begun again is told by it."""
    return floor(time() * 1000) / 1000


class ConversationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a conversation between two requests.

    `door` is the part of lamina that began it, `group` the client's own id, `parent` the conversation or
    group that this one came from. `listed` has its page for each address (`conversations.addresses`). `title`
    are the first words of the user, where texts are kept. `system` and `chain` are digests of the last
    request. `usage` is what the upstream reported for it, None if the ledger has learnt from it already.
    `windows` has the window of each model that refused a request as too long. `exchanges` are the recalls
    that lamina answered: the client's own history does not have them. `keep` is what the record has of
    requests: "all", "lowered" or "nothing". `answers` are the ids under which `ANSWERS` names this
    conversation. `inherited_cuts` are the cuts of lamina that the ledger had when this conversation was
    forked: they were made in the one that it came from. `left` are the conversations that the client has left
    for this one.
    """

    # A factory, since a value that is only the default would not be written.
    version: int = msgspec.field(default_factory=lambda: STATE_VERSION)
    door: str = ""
    dialect: str = ""
    group: str = ""
    parent: str = ""
    listed: dict[str, str] = {}
    title: str = ""
    upstream: str = ""
    model: str = ""
    system: tuple[Digest, ...] = ()
    chain: bytes = b""
    first_answer: int = 0
    ledger: Ledger = Ledger()
    inherited_cuts: int = 0
    usage: Usage | None = None
    windows: dict[str, int] = {}
    exchanges: tuple[RecallExchange, ...] = ()
    answers: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    requests: int = 0
    tokens: int = 0
    began: float = 0.0
    updated: int = 0
    keep: str = ""

    @property
    def was_cut(self) -> bool:
        """Whether the ledger has anything that changes a request."""
        return changes_requests(self.ledger)

    @property
    def may_hold_text(self) -> bool:
        """Whether words of the client's are stored for it, or for one that was left for it."""
        return self.was_cut or bool(self.exchanges or self.left)

    def after(self, digests: RequestDigests) -> ConversationState:
        """The state after a request with these digests."""
        return msgspec.structs.replace(
            self,
            system=digests.system,
            chain=b"".join(digests.chain),
            first_answer=digests.first_answer,
        )

    def with_exchange(self, exchange: RecallExchange) -> ConversationState:
        """The state with one more recall, and the id by which its answer is found."""
        answers = self.answers
        if exchange.changes_next:
            answers = (*answers, exchange.shown_id)
        exchanges = (*self.exchanges, exchange)[-EXCHANGES:]
        return msgspec.structs.replace(self, exchanges=exchanges, answers=answers)

    def digests(self) -> RequestDigests:
        """The digests of the last request, without its segments."""
        links = [self.chain[start : start + LINK] for start in range(0, len(self.chain), LINK)]
        return RequestDigests(
            system=self.system,
            digests=(Digest(""),) * len(links),
            chain=tuple(links),
            first_answer=self.first_answer,
        )

    def encode(self) -> bytes:
        """The state as it is stored, with the time of now."""
        began = self.began or began_now()
        return msgspec.json.encode(msgspec.structs.replace(self, began=began, updated=int(time())))


def find_title(log: Sequence[Segment]) -> str:
    """The first words of the user, for a list: what clients put before them in tags is left out."""
    for segment in log:
        if segment.role is not Role.USER or segment.kind != "user":
            continue
        for part in reversed(segment.parts):  # attachments stand before the question
            match part:
                case Text(text=text) if text and not text.startswith("<"):
                    return " ".join(split_words(text[: 4 * TITLE]))[:TITLE]
    return ""


def changes_requests(ledger: Ledger) -> bool:
    """Whether a request with this ledger leaves in another form than it came in."""
    return any((ledger.lines, ledger.folds, ledger.repairs, ledger.cuts))


def decode_state(source: bytes) -> ConversationState:
    """The state that a store holds. A store that holds something else, or another version, is damaged."""
    try:
        state = msgspec.json.decode(source, type=ConversationState)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"the state of a conversation cannot be read: {error}") from error
    for version, own_version in ((state.version, STATE_VERSION), (state.ledger.version, LEDGER_VERSION)):
        if version != own_version:
            hint = advise_on_version(version, own_version)
            raise Damaged(f"the state of a conversation has version {version}", hint=hint)
    return state


class KeptConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation as it was read: its name, its state, the bytes of that, and how many records it has.

    A process that was killed may leave a record without a state; its state is empty then.
    """

    name: str
    state: ConversationState
    source: bytes = b""
    records: int


async def list_conversations(store: Store, workspace: str) -> AsyncIterator[KeptConversation]:
    """All conversations of a workspace that a door has recorded, but for those deleted meanwhile."""
    async for head in every_conversation(store, conversation_workspace(workspace)):
        conversation = await find_conversation(store, workspace, head.conversation)
        if conversation is not None:
            yield conversation


async def find_conversation(store: Store, workspace: str, name: str) -> KeptConversation | None:
    """One conversation, without its record; None if there is none of this name."""
    page = await store.read(conversation_place(workspace, name), last=0)
    if not page.head.state and not page.head.count:
        return None
    state = ConversationState()
    if page.head.state:
        state = decode_state(page.head.state)
    return KeptConversation(name=name, state=state, source=page.head.state, records=page.head.count)


async def read_record(
    store: Store, workspace: str, name: str, record: ConversationRecord | None = None
) -> ConversationRecord:
    """The record of a conversation. Give a `record` to add what came since it was read."""
    record = record or ConversationRecord()
    page = await store.read(conversation_place(workspace, name), after=record.count)
    record.read(item.body for item in page.records)
    return record
