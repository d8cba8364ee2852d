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
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from lamina.conversations.addresses import Group, name_page
from lamina.conversations.recognise import (
    Recognised,
    choose_state,
    is_named,
    list_ids,
    name_left,
    part_from_hidden,
    recognise,
    recognise_named,
)
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.conversations.shelf import forget_lost_text
from lamina.conversations.store import ConversationState, KeptConversation, began_now, find_title
from lamina.core.epochs import SYSTEM_CHANGED, TOOLS_CHANGED
from lamina.core.values import Cut, Ledger
from lamina.dialects.memos import ParseMemo
from lamina.dialects.port import Dialect, ParsedRequest
from lamina.fitting.markers import find_last_block
from lamina.fitting.policy import Keep
from lamina.relay.identity import ClientIdentity
from lamina.relay.live_conversation import LiveConversation, Opening
from lamina.relay.request_bodies import RequestBody
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.relay.turn_memory import MEMORY_BYTES

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

NAME_DIGITS = 20
"""Hexadecimal digits at the end of a name."""

LEFT_COMPARED = 64
"""Conversations of a client that are compared to find those which it leaves, the ones used last."""

LIKELY_COMPARED = 8
LEAST_SAME = 2
"""So many messages of one of the last conversations, and half of all it had, make it likely that a request
goes on from it."""


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
        self.given_ledgers: dict[str, Ledger] = {}
        """Ledgers of earlier processes, by the names of the conversations that begin with them."""

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
        opening = _find_opening(group, digests)
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
            if recognised.shared < len(nearest.digests.chain):  # under its name it loses texts itself
                left = await self._leave(call, (nearest.name, *self._name_left(call, members)))
            conversation.is_guess = conversation.is_guess and not certain
            shared = conversation.count_answered(recognised.shared)
        else:
            names = self._name_left(call, members)
            left = await self._leave(call, names)
            conversation = await self._begin(call, names)
            conversation.is_guess = not certain
            likely = nearest or self._find_likely(call)
            if likely is not None:
                conversation.compare_with(likely)
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
        if left and conversation is nearest:
            conversation.state = forget_lost_text(conversation.state, call.digests)
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

    def _find_likely(self, call: ParsedCall) -> LiveConversation | None:
        """The conversation that a new one most likely goes on from; None if none is like it.

        A client that changes its first message each time, or drops its oldest ones, begins a conversation
        anew with each request. Its cache is lost each time, and whoever listens should hear why. Nothing else
        depends on this: the new conversation has no ledger of the other one.
        """
        group, _ = call.opening
        messages = frozenset(call.digests.digests)
        last_used = reversed(self._by_group.get(group, {}).values())
        for other in islice(last_used, LIKELY_COMPARED):
            earlier = other.digests.digests
            same = sum(digest in messages for digest in earlier)
            if other.request is not None and same >= LEAST_SAME and 2 * same >= len(earlier):
                return other
        return None

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
            ledger=self.given_ledgers.pop(list_ids(call.identity.group)[0], Ledger()),
            began=began_now(),
            dialect=call.dialect.name,
            group=call.identity.group,
            parent=call.identity.parent,
            left=left,
            keep=self._keep,
            title=title,
        )
        name, count = await self._choose_name(call)
        conversation = LiveConversation(call.workspace, name, call.opening, state)
        conversation.record.skip_to(count)
        return conversation

    async def _choose_name(self, call: ParsedCall) -> tuple[str, int]:
        """A name that tells the client and nothing of the content: `claude-code-5f0c…`. Nobody has it yet.

        It is made of the opening, so that it is the same again if the gateway is killed before it has saved
        the conversation. Of several that begin alike the later ones have names by chance, and so have those
        of which the store cannot say whether they are the first. With it comes how many records it has: of a
        conversation that was deleted or never saved, they may be written later than its state.
        """
        group, _ = call.opening
        kind = group.client.partition(":")[0] or "chain"
        name = f"{kind}-{name_page(group, call.digests.opening_address)[:NAME_DIGITS]}"
        if (group.workspace, name) not in self._live:
            with suppress(StoreGone):
                head = await self._store.load_head(group.workspace, name)
                if not head.state:
                    return name, head.count
        return f"{kind}-{token_hex(NAME_DIGITS // 2)}", 0

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

    def forget_group(self, group: str) -> None:
        """Drop the conversations that a client names so from memory."""
        for conversation in list(self._live.values()):
            if list_ids(conversation.state.group)[0] == group:
                self.forget(conversation)

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
        if is_named(group.client):
            shelves = [self._by_group.get(group, {})]
        else:
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
            live = LiveConversation(workspace, stored.name, _find_opening(group, state.digests()), state)
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


def _find_opening(group: Group, digests: RequestDigests) -> Opening:
    """What requests begin alike by. All those of one name do."""
    if is_named(group.client):
        return group, b""
    return group, digests.opening


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
    candidates = [(member, member.digests) for member in members.values()]
    if any(is_named(member.group.client) for member in members.values()):
        recognised = recognise_named(digests, candidates)
    else:
        recognised = recognise(digests, candidates)
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
