"""What is remembered of one conversation between two calls, and how it is written into a store."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec

from lamina.conversations.recall_loop import RecallExchange, select_exchanges
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, count_shared_links
from lamina.core.recall import list_refs
from lamina.core.values import Digest, Ledger
from lamina.dialects.usage import Usage
from lamina.fitting.request import RequestMemo

LINK_BYTES = 16
"""The length of one link in the chain of a request's digests."""


def _make_uid() -> str:
    return uuid4().hex


class LastRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request that was answered: what was sent, what the API counted for it, and when it was sent.

    The next request is compared with it, to say why a cache missed. `sent_at` is of a clock that only runs
    forward. `is_uncached`: a listener was told already that the API caches nothing of this conversation.
    """

    fitted: Any
    usage: Usage
    sent_at: float
    is_uncached: bool = False


class Conversation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is remembered of one conversation between two calls.

    `digests` are those of the last request, which was in `dialect` and had these `turns`. `usage` is what
    the API counted for it, and `fitted` what was sent. `windows` has the window of each model whose API
    refused a request as too long. `last_request` is what the next one is compared with; a fork has that of
    the conversation that it was forked from. `exchanges` are the recalls that the client did not see; a
    request with them in it has a memo of its own (`spliced_memo`). In a store the conversation is known by
    its `uid`, and `revision` counts its calls. `left_names` are the names there of conversations that the
    client left for this one: see `Conversations.save`.
    """

    ledger: Ledger = Ledger()
    memo: Any = msgspec.field(default_factory=RequestMemo)
    spliced_memo: Any = msgspec.field(default_factory=RequestMemo)
    exchanges: tuple[RecallExchange, ...] = ()
    uid: str = msgspec.field(default_factory=_make_uid)
    revision: int = 0
    dialect: str = ""
    turns: tuple[Any, ...] = ()
    digests: RequestDigests = NO_DIGESTS
    usage: Usage | int = 0
    windows: dict[str, int] = {}
    fitted: Any = None
    last_request: LastRequest | None = None
    left_names: tuple[str, ...] = ()


def named_id(name: str) -> str:
    """Return the name that a conversation of this name has in the store."""
    return f"name:{name}"


def thread_ids(digests: RequestDigests) -> list[str]:
    """Return the names under which a request's conversation may be stored.

    They are the hash of everything up to its first answer, and of what came before that answer.
    """
    first = digests.first_answer
    links = digests.chain[first : first + 1]
    if first > 0:
        links += digests.chain[first - 1 : first]
    return [f"begins:{link.hex()}" for link in links]


class ConversationRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation in a store: everything but memos, which only save time. `chain` joins all links."""

    uid: str
    revision: int
    dialect: str
    ledger: dict[str, Any]
    chain: bytes
    system: tuple[Digest, ...] = ()
    first_answer: int = 0
    usage: Usage = Usage()
    windows: dict[str, int] = {}
    exchanges: tuple[RecallExchange, ...] = ()


def forget_lost_text(record: ConversationRecord, living: Conversation) -> ConversationRecord:
    """Return what may stay stored of another branch: no text that the living branch has no more.

    A branch is left when a client edits or deletes messages, or goes back. Its digests quote what the user
    said, and nobody would ever delete that. If the client goes on with the other branch after all, it sends
    these messages again, and they are folded anew.
    """
    links = _split_chain(record.chain)
    if count_shared_links(living.digests.chain, links) == len(links):
        return record  # the living branch goes on where this one ended
    ledger = Ledger.load(record.ledger)
    if not ledger.folds and not record.exchanges:
        return record
    log = (*living.digests.system_segments, *living.digests.segments)
    refs = frozenset(ref for ref, _ in list_refs(log))
    folds = tuple(fold for fold in ledger.folds if refs.issuperset(fold.covers))
    return msgspec.structs.replace(
        record,
        ledger=msgspec.structs.replace(ledger, folds=folds).dump(),
        exchanges=select_exchanges(record.exchanges, living.digests),
    )


def to_record(conversation: Conversation) -> ConversationRecord:
    """Return what is stored of a conversation."""
    usage = conversation.usage
    if not isinstance(usage, Usage):
        usage = Usage(input=usage)
    digests = conversation.digests
    return ConversationRecord(
        uid=conversation.uid,
        revision=conversation.revision,
        dialect=conversation.dialect,
        ledger=conversation.ledger.dump(),
        chain=b"".join(digests.chain),
        system=digests.system,
        first_answer=digests.first_answer,
        usage=usage,
        windows=conversation.windows,
        exchanges=conversation.exchanges,
    )


def from_record(record: ConversationRecord) -> Conversation:
    """Return the conversation that was stored. It knows its digests, but not its segments."""
    return Conversation(
        uid=record.uid,
        revision=record.revision,
        dialect=record.dialect,
        ledger=Ledger.load(record.ledger),
        digests=RequestDigests(
            system=record.system, chain=_split_chain(record.chain), first_answer=record.first_answer
        ),
        usage=record.usage,
        windows=record.windows,
        exchanges=record.exchanges,
    )


def _split_chain(chain: bytes) -> tuple[bytes, ...]:
    """Return the links that were joined to be stored."""
    return tuple(chain[at : at + LINK_BYTES] for at in range(0, len(chain), LINK_BYTES))
