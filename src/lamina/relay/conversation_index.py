"""Finds the conversation that a request continues, by the digests of its messages, inside the client's id.

A request is compared with the conversations that begin as it does, through the model's first answer, under
the same id (`lamina.conversations.addresses`). Of these the one with the longest common chain is taken. If it
goes on where that one ended, or repeats it, it is the same conversation. If it shares at least one
answer and then goes another way, it is a fork: a conversation of its own, with the ledger of the common part.
Everything else is new.

A chain is made of parsed segments. So a message that turns from a list of blocks into a string, or whose
cache marker moved, is the same message.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain, count, islice
from operator import attrgetter
from secrets import token_hex
from time import time
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from lamina.conversations.addresses import Group, name_page
from lamina.conversations.recognise import (
    Recognised,
    choose_state,
    name_left,
    part_from_hidden,
    recognise,
)
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, count_shared_links, digest_log
from lamina.conversations.store import ConversationState, KeptConversation, find_title
from lamina.core.epochs import SYSTEM_CHANGED, TOOLS_CHANGED
from lamina.core.values import Cut
from lamina.dialects.memos import CheckMemo, ParseMemo, StreamMemo
from lamina.dialects.port import Dialect, ParsedRequest
from lamina.dialects.usage import NOTHING_REPORTED
from lamina.fitting.markers import find_last_block
from lamina.fitting.policy import Keep
from lamina.fitting.request import RequestMemo
from lamina.relay.identity import ClientIdentity
from lamina.relay.request_bodies import RequestBody
from lamina.relay.sizes import CountedRequest, KnownTrigger
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.relay.turn_memory import MEMORY_BYTES, MOVING

LIVE_BYTES = MEMORY_BYTES
"""Bytes of requests whose conversations stay in memory, as many as there are decoded messages of."""

CONVERSATION_BYTES = 6 << 10
TURN_BYTES = 2 << 10
"""What a conversation, and each of its messages, takes in memory besides its bytes. Measured, rounded up.

Without them a thousand short conversations would count as nothing.
"""

MOST_LEARNT = 64
"""Records of another process that are read so that their texts are not stored again."""

AnyKey = TypeVar("AnyKey")

_READ_PARTS = attrgetter("parts")

Opening = tuple[Group, bytes]
"""What was said before the first answer: requests that begin alike are fitted one after the other."""

NAME_DIGITS = 20
"""Hexadecimal digits at the end of a name."""

LEFT_COMPARED = 64
"""Conversations of a client that are compared to find those which it leaves, the ones used last."""


class ParsedCall(NamedTuple):
    """A request that was parsed, perhaps beside a `similar` one, and what its conversation is found by."""

    workspace: str
    identity: ClientIdentity
    dialect: Dialect
    request: Mapping[str, Any]
    opening: Opening
    parsed: ParsedRequest
    digests: RequestDigests
    memo: ParseMemo
    similar: LiveConversation | None


class ConversationMatch(NamedTuple):
    """The conversation of a request, with the request as it was parsed.

    `shared` counts the segments that it has in common with a request of the conversation that was answered.
    `certain` is False if the store could not be asked, so that there may be an older conversation which
    nobody here knows. `left` are the conversations that the client left for this one, as far as they store
    something that has to go.
    """

    conversation: LiveConversation
    parsed: ParsedRequest
    digests: RequestDigests
    shared: int
    certain: bool = True
    left: tuple[LiveConversation, ...] = ()

    @property
    def new_segments(self) -> int:
        """How many segments the last answered request of the conversation did not have."""
        return max(len(self.digests.chain) - self.shared, 0)

    def find_head_change(self) -> tuple[Cut, ...]:
        """The cut that the caller has made by sending other tools or another system text than before.

        Nothing was lowered. The record names it, so that everybody can see why a cache was lost.
        """
        conversation = self.conversation
        if not self.shared:
            return ()
        tools = self.parsed.head.tools
        reason = ""
        if conversation.digests.system != self.digests.system:
            reason = SYSTEM_CHANGED
        if conversation.tools is not None and conversation.tools != tools:
            reason = TOOLS_CHANGED
        if not reason:
            return ()
        return (Cut(number=1, reason=reason),)

    def find_last_block(self) -> int | None:
        """The number of the last block of the request before this one; None if this is the first."""
        if not self.shared:
            return None
        log = self.parsed.log
        parts = sum(map(len, map(_READ_PARTS, log[: len(log) - self.new_segments])))
        return find_last_block(self.parsed.head, parts)


DOOR = "gateway"
"""What the record calls the gateway."""


class ConversationIndex:
    """All conversations of one gateway process, over the store that it shares with others.

    `shared`: other processes write to the store, so it is asked for every request. `keep` is what the record
    has of requests.
    """

    def __init__(
        self, store: GatewayStore, *, shared: bool, keep: Keep = "lowered", door: str = DOOR
    ) -> None:
        self._store = store
        self._door = door
        self.shared = shared
        self._keep = keep
        self._live: OrderedDict[tuple[str, str], LiveConversation] = OrderedDict()
        self._by_address: dict[Opening, dict[str, LiveConversation]] = {}
        self._by_group: dict[Group, dict[str, LiveConversation]] = {}
        self._uses = count()
        self._size = 0
        self._locks: WeakValueDictionary[Opening, asyncio.Lock] = WeakValueDictionary()

    def parse(
        self, workspace: str, identity: ClientIdentity, dialect: Dialect, body: RequestBody
    ) -> ParsedCall:
        """Parse a request, reusing what a similar one was parsed into. Raises BadInput if it has no shape."""
        group = Group(workspace, identity.group, dialect.name)
        similar = self._find_similar(group, body)
        memo = ParseMemo(copies=False)
        digests = NO_DIGESTS
        if similar is not None:
            memo.past = similar.memo.parse.past
            memo.basis = similar.memo.parse.basis
            digests = similar.digests
        parsed = dialect.wire.parse(body.request, memo=memo)
        digests = digest_log(parsed.log, digests)
        opening = (group, digests.opening)
        return ParsedCall(workspace, identity, dialect, body.request, opening, parsed, digests, memo, similar)

    def lock(self, opening: Opening) -> asyncio.Lock:
        """The lock under which requests that begin alike are fitted and saved, one after the other."""
        lock = self._locks.get(opening)
        if lock is None:
            lock = asyncio.Lock()
            self._locks[opening] = lock
        return lock

    async def find(self, call: ParsedCall) -> ConversationMatch:
        """The conversation of a parsed request. The caller holds the lock of its opening."""
        members = self._members(call)
        recognised = _recognise(members, call.digests)
        certain = True
        try:
            if not await self._is_current(recognised):
                members = await self._load_members(call)
                recognised = _recognise_stored(members, call.digests)
        except StoreGone:
            certain = False
        nearest = recognised.nearest
        shared = 0  # a new conversation has sent nothing yet, a fork neither
        left: list[LiveConversation] = []
        if nearest is not None and recognised.relation == "continues":
            conversation = nearest
            conversation.living = None
            conversation.is_guess = conversation.is_guess and not certain
            shared = conversation.count_answered(recognised.shared)
        else:
            names = self._name_left(call, members)
            left = await self._leave(call, names)
            conversation = await self._begin(call, names)
            conversation.is_guess = not certain
            if nearest is not None:
                conversation.compare_with(nearest)
        if nearest is not None:
            conversation.state = choose_state(
                recognised,
                conversation.state,
                nearest.state,
                parent=nearest.name,
                request=call.request,
                log=call.parsed.log,
                digests=call.digests,
                dialect=call.dialect,
            )
        if conversation is not nearest:
            conversation.answered_cuts = len(conversation.state.ledger.cuts)
        if conversation is not call.similar:
            # It was parsed beside messages of another conversation, and those of this one may differ.
            call.memo.keeps_equality = False
        conversation.memo.parse = call.memo
        self._touch(conversation)
        return ConversationMatch(conversation, call.parsed, call.digests, shared, certain, tuple(left))

    async def _is_current(self, recognised: Recognised[LiveConversation]) -> bool:
        """Whether the request continues a conversation in memory, and no other process knows better.

        If nobody else has continued that conversation, none is nearer. So of a store that is shared only its
        state is read.
        """
        nearest = recognised.nearest
        if nearest is None or nearest.is_guess or recognised.relation != "continues":
            return False
        if not self.shared:
            return True
        head = await self._store.load_head(*nearest.key)
        if not head.state or head.state != nearest.source:
            return False
        await self._learn_records(nearest, head.count)
        return True

    def _name_left(self, call: ParsedCall, members: Mapping[str, LiveConversation]) -> tuple[str, ...]:
        """The conversations that a client leaves with this request.

        One that begins in another way has another address. It is looked for among those of the client that
        were used last.
        """
        group, _ = call.opening
        of_group = self._by_group.get(group, {}).values()
        last_used = islice(reversed(of_group), LEFT_COMPARED)
        others = {other.key: other for other in (*last_used, *members.values())}
        return name_left(
            call.digests, [(other.name, other.state, other.digests) for other in others.values()]
        )

    async def _leave(self, call: ParsedCall, names: Iterable[str]) -> list[LiveConversation]:
        """Note for which request the client leaves these conversations."""
        left = await self._load_named(call.workspace, names)
        for other in left:
            other.living = call.digests
        return left

    async def _begin(self, call: ParsedCall, left: tuple[str, ...]) -> LiveConversation:
        """A conversation of which this request is the first. `left` are those that the client left."""
        title = ""
        if self._keep == "all":
            title = find_title(call.parsed.log)
        state = ConversationState(
            door=self._door,
            began=int(time()),
            dialect=call.dialect.name,
            group=call.identity.group,
            parent=call.identity.parent,
            left=left,
            keep=self._keep,
            title=title,
        )
        name = await self._choose_name(call)
        return LiveConversation(call.workspace, name, call.opening, state)

    async def _choose_name(self, call: ParsedCall) -> str:
        """A name that tells the client and nothing of the content: `claude-code-5f0c…`. Nobody has it yet.

        It is made of the opening, so that it is the same again if the gateway is killed before it has saved
        the conversation. Of several that begin alike the later ones have names by chance, and so have those
        of which the store cannot say whether they are the first.
        """
        group, _ = call.opening
        kind = group.client.partition(":")[0] or "chain"
        name = f"{kind}-{name_page(group, call.digests.opening_address)[:NAME_DIGITS]}"
        is_taken = (group.workspace, name) in self._live
        if not is_taken:
            try:
                is_taken = bool((await self._store.load_head(group.workspace, name)).state)
            except StoreGone:
                is_taken = True
        if is_taken:
            name = f"{kind}-{token_hex(NAME_DIGITS // 2)}"
        return name

    async def reload(self, conversation: LiveConversation) -> None:
        """Read a conversation again, after another process has changed it."""
        stored = await self._store.load(*conversation.key)
        if stored is None:
            conversation.source = b""
            await self._learn_records(conversation, None)
            return
        conversation.accept(stored)
        if conversation.key in self._live:
            self._put_at_address(conversation)
        await self._learn_records(conversation, stored.records)

    def note_request(self, conversation: LiveConversation, body: RequestBody) -> None:
        """Note that a conversation has a new last request, and forget old conversations if need be."""
        if conversation.key not in self._live:
            return
        self._put_at_address(conversation)
        if body.seen is not None:
            body.seen.owner = conversation
        conversation.text_size = len(body.text)
        self._measure(conversation)
        while self._size > LIVE_BYTES and len(self._live) > 1:
            self.forget(next(iter(self._live.values())))
        # One request alone may be over the limit: one of 32 MB once took 2.4 GB while it stayed here.
        if self._size > LIVE_BYTES:
            self.drop_content(conversation)

    def drop_content(self, conversation: LiveConversation) -> None:
        """Forget the last request of a conversation, as a restart would."""
        conversation.drop_content()

    def forget(self, conversation: LiveConversation) -> None:
        """Drop a conversation from memory. What has to stay is in the store."""
        if self._live.pop(conversation.key, None) is None:
            return
        self._size -= conversation.memory_size
        conversation.memory_size = 0
        self.drop_content(conversation)  # it may still wait to be saved, for which its state is enough
        self._take_from_address(conversation)
        _take_out(self._by_group, conversation.group, conversation)

    def _measure(self, conversation: LiveConversation) -> None:
        """Count what a conversation takes in memory now."""
        turns_size = TURN_BYTES * len(conversation.turns)
        memory_size = CONVERSATION_BYTES + turns_size + conversation.text_size + conversation.record.size
        self._size += memory_size - conversation.memory_size
        conversation.memory_size = memory_size

    def _members(self, call: ParsedCall) -> dict[str, LiveConversation]:
        """The conversations in memory that a request may continue or fork, the one used last at the end."""
        group, _ = call.opening
        addresses = {call.digests.addresses()[0], call.digests.opening_address}
        shelves = [self._by_address.get((group, address), {}) for address in addresses]
        members = sorted(chain.from_iterable(shelf.values() for shelf in shelves), key=attrgetter("last_use"))
        return {member.name: member for member in members}

    async def _load_members(self, call: ParsedCall) -> dict[str, LiveConversation]:
        """The conversations that a request may continue or fork, as the store has them now."""
        members = self._members(call)
        group, _ = call.opening
        for stored in await self._store.find_alike(group, call.digests):
            members[stored.name] = self._accept(call.workspace, stored, members.get(stored.name))
            await self._learn_records(members[stored.name], stored.records)
        return members

    async def _load_named(self, workspace: str, names: Iterable[str]) -> list[LiveConversation]:
        """The conversations with these names that are in memory, or in the store if that answers."""
        conversations: list[LiveConversation] = []
        for name in names:
            live = self._live.get((workspace, name))
            if live is None:
                with suppress(StoreGone):
                    stored = await self._store.load(workspace, name)
                    if stored is not None:
                        live = self._accept(workspace, stored, None)
                        await self._learn_records(live, stored.records)
            if live is not None:
                conversations.append(live)
        return conversations

    async def _learn_records(self, conversation: LiveConversation, count: int | None) -> None:
        """Learn how long the record of a conversation is, and what another process has written last.

        `count` is None if it has no state in the store: it was deleted, or the gateway was killed before it
        was saved. A long record is not read: a request would wait for it.
        """
        record = conversation.record
        if count is None:
            count = (await self._store.load_head(*conversation.key)).count
        if count < record.count:
            record.begin_anew()
        if count - record.count > MOST_LEARNT:
            record.skip_to(count)
        elif count > record.count:
            record.learn(await self._store.load_records(*conversation.key, after=record.count))

    def _accept(
        self, workspace: str, stored: KeptConversation, live: LiveConversation | None
    ) -> LiveConversation:
        """A conversation in memory, brought to what the store has."""
        state = stored.state
        live = live or self._live.get((workspace, stored.name))
        if live is None:
            group = Group(workspace, state.group, state.dialect)
            live = LiveConversation(workspace, stored.name, (group, state.digests().opening), state)
            self._touch(live)
        if live.source != stored.source:
            live.accept(stored)
            self._put_at_address(live)
        return live

    def _touch(self, conversation: LiveConversation) -> None:
        """Put a conversation last in the order in which they are forgotten."""
        if conversation.lock is None:
            conversation.lock = self.lock(conversation.opening)
        if conversation.key not in self._live:
            self._measure(conversation)
        self._live[conversation.key] = conversation
        self._live.move_to_end(conversation.key)
        conversation.last_use = next(self._uses)
        self._put_at_address(conversation)
        _put_last(self._by_group, conversation.group, conversation)

    def _put_at_address(self, conversation: LiveConversation) -> None:
        """Let requests find a conversation by what its last one begins with."""
        self._take_from_address(conversation)
        conversation.address = (conversation.group, conversation.digests.addresses()[0])
        self._by_address.setdefault(conversation.address, {})[conversation.name] = conversation

    def _take_from_address(self, conversation: LiveConversation) -> None:
        if conversation.address is not None:
            _take_out(self._by_address, conversation.address, conversation)
        conversation.address = None

    def _find_similar(self, group: Group, body: RequestBody) -> LiveConversation | None:
        """A conversation with many of the same messages. It only saves time and decides nothing."""
        if body.similar is None or body.similar.owner is None:
            return None
        owner: LiveConversation = body.similar.owner
        if owner.group != group or self._live.get(owner.key) is not owner:
            return None
        return owner


def _put_last(
    shelf: dict[AnyKey, dict[str, LiveConversation]], key: AnyKey, conversation: LiveConversation
) -> None:
    """Put a conversation behind the others that have this key."""
    members = shelf.setdefault(key, {})
    members.pop(conversation.name, None)
    members[conversation.name] = conversation


def _take_out(
    shelf: dict[AnyKey, dict[str, LiveConversation]], key: AnyKey, conversation: LiveConversation
) -> None:
    members = shelf[key]
    members.pop(conversation.name, None)
    if not members:
        del shelf[key]


def _recognise(
    members: Mapping[str, LiveConversation], digests: RequestDigests
) -> Recognised[LiveConversation]:
    recognised = recognise(digests, [(member, member.digests) for member in members.values()])
    if recognised.nearest is None:
        return recognised
    return part_from_hidden(recognised, recognised.nearest.state, digests)


def _recognise_stored(
    members: Mapping[str, LiveConversation], digests: RequestDigests
) -> Recognised[LiveConversation]:
    """Recognise a request after the store was asked: what it has comes before what was begun without it."""
    stored = {name: member for name, member in members.items() if not member.is_guess}
    recognised = _recognise(stored, digests)
    if recognised.nearest is not None:
        return recognised
    return _recognise(members, digests)


class LiveConversation:
    """A conversation that this process has seen, with its last request.

    Everything here but the name can be recovered: from the store, or by decoding and counting once more.
    """

    def __init__(self, workspace: str, name: str, opening: Opening, state: ConversationState) -> None:
        self.workspace = workspace
        self.name = name
        self.opening = opening
        self.address: Opening | None = None
        """What requests find it by in memory."""

        self.last_use = 0
        self.key = (workspace, name)
        """What a process knows it by: two workspaces may have the same name."""

        self.lock: asyncio.Lock | None = None
        """That of its opening, held here so that it lives as long as one of the conversations does."""

        self.state = state
        self.source = b""
        """The bytes of the state in the store, b"" before it is saved."""

        self.is_guess = False
        """Whether it was begun while the store could not be asked, so that it may continue an older one.

        Until that is known, no request finds it in the store.
        """

        self.living: RequestDigests | None = None
        """The request that its client has left it for (`find_left`): what that has lost may not stay stored.

        None while it is in use.
        """

        self.record = RecordWriter()
        """What happened in it, on its way to the store."""

        self.late_write: asyncio.Future[Any] | None = None
        """A write of it that took too long, and may still be made."""

        self.digests = NO_DIGESTS
        self.tools: tuple[dict[str, Any], ...] | None = None
        """Those of the last request, None if this process has not seen it."""

        self.memo = make_memo()
        self.spliced_memo: RequestMemo | None = None
        """The memo of requests that have recalls put back into them; None before there was one."""

        # The last request as it came.
        self.turns: tuple[Any, ...] = ()
        self.text_size = 0
        self.head_bytes = 0
        self.memory_size = 0
        """What all of it takes in memory, as it was counted last."""

        # How large the last request was, and how near to a cut.
        self.tokens = 0
        self.counted: CountedRequest | None = None
        """The last request that the gateway counted, if it was sent as it came."""

        self.measured: CountedRequest | None = None
        """The last request with the tokens that the upstream reported, if it was sent as it came."""

        self.trigger: KnownTrigger | None = None
        self.is_near = False
        """Whether the next request may be over the trigger."""

        # The last request that was answered, as it was sent, and what came back. Refused ones warm no cache.
        self.request: Any = None
        self.sent_at = 0.0
        self.reported = NOTHING_REPORTED
        """What the upstream reported."""

        self.answered_links = 0
        """How many segments of the client's it had."""

        self.answered_cuts = 0
        """How many cuts its ledger had."""

    @property
    def group(self) -> Group:
        return Group(self.workspace, self.state.group, self.state.dialect)

    def compare_with(self, parent: LiveConversation) -> None:
        """Take the last request of the conversation that this one was forked from as the one before it.

        An edit makes a fork, and its cache is lost: the two requests tell why.
        """
        self.request = parent.request
        self.sent_at = parent.sent_at
        self.reported = parent.reported

    def note_answered(self, request: Any, *, sent_at: float, cuts: int) -> None:
        """The last request was answered: from now on caches hold it."""
        self.request = request
        self.sent_at = sent_at
        self.answered_links = len(self.digests.chain)
        self.answered_cuts = cuts

    def count_answered(self, shared: int) -> int:
        """How many of the segments that a request shares with the last one were in one that was answered."""
        return min(shared, self.answered_links)

    def accept(self, stored: KeptConversation) -> None:
        """Take over what another process has saved, unless this one has seen a later request."""
        is_news = stored.source != self.source
        self.source = stored.source
        if stored.state.began != self.state.began:  # it was deleted, and somebody has begun it again
            self.record.begin_anew()
        self.record.listed |= stored.state.listed
        saved_digests = stored.state.digests()
        if self._is_ahead(stored.state, saved_digests):
            return
        if is_news:  # the last request was another process's, and what it sent is not known here
            self.request = None
            self.reported = NOTHING_REPORTED
            self.answered_links = len(saved_digests.chain)
            self.answered_cuts = len(stored.state.ledger.cuts)
        self.state = stored.state
        self.digests = saved_digests
        self.tools = None

    def _is_ahead(self, saved: ConversationState, saved_digests: RequestDigests) -> bool:
        """Whether the last request here continues the one in the store, under the same ledger.

        That is so after most requests: one that needs no cut is saved some seconds later.
        """
        if saved.ledger != self.state.ledger:
            return False
        chain = self.digests.chain
        saved_length = len(saved_digests.chain)
        if count_shared_links(chain, saved_digests.chain) < saved_length:
            return False
        return len(chain) > saved_length or self.state.requests > saved.requests

    def drop_content(self) -> None:
        """Forget the messages of a request that is too large to stay in memory, as a restart would."""
        self.digests = self.state.digests()
        self.memo = make_memo()
        self.spliced_memo = None
        self.turns = ()
        self.counted = None
        self.measured = None
        self.request = None
        self.record.forget_bodies()

    def take_memo(self, *, is_spliced: bool) -> RequestMemo:
        """The memo for one fit. Another request that comes meanwhile begins with a new one.

        A request with recalls has messages that are not the client's, so it has a memo of its own.
        """
        if is_spliced:
            memo = self.spliced_memo or make_memo()
            self.spliced_memo = None
        else:
            memo = self.memo
            self.memo = make_memo()
        return memo

    def give_memo_back(self, memo: RequestMemo, *, is_spliced: bool) -> None:
        if is_spliced:
            self.spliced_memo = memo
        else:
            self.memo = memo

    def add_records(self, records: Iterable[bytes]) -> None:
        """Keep records until the next time that the conversation is saved."""
        for record in records:
            self.record.add_record(record)


def make_memo() -> RequestMemo:
    """What is remembered of a conversation's last request.

    Messages that came as the same bytes are the same objects here, and nobody changes them in place.
    """
    memo = RequestMemo(frozen=True)
    memo.stream = StreamMemo(is_frozen=True)
    memo.incoming = CheckMemo(tail=MOVING)
    return memo
