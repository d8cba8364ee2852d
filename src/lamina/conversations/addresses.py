"""Finds the stored conversations that a request may continue or fork: by its opening and its first answer.

Each conversation has an entry in one *page*, under a hash of what all of its later requests will have: the
messages through the model's first answer. Before that answer comes, the entry stands under the opening and
the system text. So a request reads one page, and then the state of the conversation that fits. If there is
none, it may be the second request of a conversation: that is found under its opening.

Many talks may begin alike even so ("hi", "Hello! How can I help you?"). If a page is full, later ones have
their entries in the page of the next message, then two messages further, then four. An entry is written once.
It says with which request the conversation was listed: every later request of it begins with that one.

An entry is written before the state that it leads to. One that leads nowhere does no harm, and a state that
nobody finds does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from lamina.conversations.recognise import is_named, recognise
from lamina.conversations.request_digests import RequestDigests
from lamina.conversations.store import (
    ConversationState,
    KeptConversation,
    find_conversation,
    recorded_workspace,
)
from lamina.errors import Damaged
from lamina.stores.paging import retry_conflicts
from lamina.stores.port import OwnName, Store, Where

ADDRESSES = "lamina.addresses/"
"""Begins the names of the workspaces with pages; what follows is the workspace of the caller."""

ENTRIES = 64
"""Entries of a page from which on later ones go to another page, if their requests are long enough."""

MOST_ENTRIES = 1024
"""Entries of a page whose requests are no longer than it says. The oldest go first."""

MOST_READ = 8
MOST_UNANSWERED = 2
"""Conversations that are read at most. Usually the first one is the right one.

A request that continues none of them may be a fork: its client may have left any of the newest. Of those that
had no answer when they were listed, all but the newest have gone on since.
"""

MOST_LISTED = 4
"""Pages that have an entry of one conversation. Most conversations have two."""

_LINK_BYTES = 8
"""Bytes of a link that stand in an entry. It only says which state to read first."""


class Group(NamedTuple):
    """What conversations must have in common to be one: a workspace, a client's own id and a dialect."""

    workspace: str
    client: str
    dialect: str


class AddressEntry(msgspec.Struct, frozen=True, array_like=True):
    """A conversation in a page: the length, the last link and the system text of one of its requests."""

    name: str
    length: int
    link: bytes
    system: str


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conversations that have an address in common, the newest last.

    `goes_on`: there are more, in pages for longer requests.
    """

    entries: tuple[AddressEntry, ...] = ()
    goes_on: bool = False


def address_workspace(workspace: str) -> OwnName:
    """The workspace of a store that holds the pages of a workspace."""
    return OwnName(f"{ADDRESSES}{recorded_workspace(workspace)}")


def name_page(group: Group, address: bytes) -> str:
    """The name of a page: a hash that says nothing of the content, and is no other client's."""
    digest = blake2b(digest_size=16, person=b"lamina-address")
    for text in group:
        digest.update(len(text.encode()).to_bytes(4, "big"))
        digest.update(text.encode())
    digest.update(address)
    return digest.hexdigest()


async def find_alike(store: Store, group: Group, digests: RequestDigests) -> list[KeptConversation]:
    """The conversations that a request may continue or fork, the newest last.

    If it surely continues one of them, no more are read. A named one is found by its name, whatever it begins
    with; one of an older release by its beginning.
    """
    if is_named(group.client):
        named = await list_named(store, group)
        if named:
            return named
    entries: list[AddressEntry] = []
    for address in digests.addresses():
        page = await _read_page(store, group.workspace, name_page(group, address))
        entries += page.entries
        if not page.goes_on:
            break
    alike = await _read_likely(store, group, entries, digests, most=MOST_READ)
    if digests.has_answer and not _is_continued(alike, digests):
        page = await _read_page(store, group.workspace, name_page(group, digests.opening_address))
        alike += await _read_likely(store, group, page.entries, digests, most=MOST_UNANSWERED)
    return alike


async def _read_likely(
    store: Store, group: Group, entries: Sequence[AddressEntry], digests: RequestDigests, *, most: int
) -> list[KeptConversation]:
    """The conversations that a request most likely belongs to, in the order of their entries."""
    by_place: dict[int, KeptConversation] = {}
    ranked = sorted(enumerate(entries), key=lambda each: _rank(each[1], digests, each[0]), reverse=True)
    for place, entry in ranked[:most]:
        stored = await find_conversation(store, group.workspace, entry.name)
        if stored is None:
            continue
        by_place[place] = stored
        if _is_continued([stored], digests):
            break
    return [by_place[place] for place in sorted(by_place)]


def _rank(entry: AddressEntry, digests: RequestDigests, place: int) -> tuple[bool, bool, int, int]:
    """How likely a request continues the conversation of an entry: the greatest is read first."""
    same_system = entry.system == digests.system_digest
    if _begins_with(digests, entry):
        return True, same_system, entry.length, place
    return False, same_system, 0, place


def _begins_with(digests: RequestDigests, entry: AddressEntry) -> bool:
    """Whether a request has everything that the conversation had when it was listed."""
    if not 0 < entry.length <= len(digests.chain):
        return not entry.length
    return digests.chain[entry.length - 1].startswith(entry.link)


def _is_continued(alike: Iterable[KeptConversation], digests: RequestDigests) -> bool:
    """Whether a request continues one of these, under the same system text: none is nearer."""
    same_system = [stored.state.digests() for stored in alike if stored.state.system == digests.system]
    recognised = recognise(digests, enumerate(same_system))
    return recognised.relation == "continues"


async def list_named(store: Store, group: Group) -> list[KeptConversation]:
    """The conversations that a client gave a name, whatever they begin with, the newest last."""
    page = await _read_page(store, group.workspace, _name_page_of_name(group))
    stored = [await find_conversation(store, group.workspace, entry.name) for entry in page.entries]
    return [each for each in stored if each is not None and each.state.dialect == group.dialect]


def _name_page_of_name(group: Group) -> str:
    """The name of the page of a client's own name. It has conversations of all dialects."""
    return name_page(group._replace(dialect=""), b"")


async def enlist(
    store: Store, workspace: str, name: str, state: ConversationState, listed: dict[str, str]
) -> None:
    """Give a conversation an entry at its address, unless it has one. `listed` has the page of each address.

    A conversation has two addresses in its life, one before its first answer and one after it. If it has
    more, since it was named by an older release, the oldest entry goes.
    """
    group = Group(workspace, state.group, state.dialect)
    if is_named(state.group):
        await _enlist_named(store, group, name, listed)
        return
    digests = state.digests()
    addresses = digests.addresses()
    own_address = name_page(group, addresses[0])
    if own_address in listed:
        return
    link = b""
    if digests.chain:
        link = digests.chain[-1][:_LINK_BYTES]
    entry = AddressEntry(name, len(digests.chain), link, digests.system_digest)
    for address in addresses:
        page_name = name_page(group, address)
        if await _add_entry(store, workspace, page_name, entry, is_last=address is addresses[-1]):
            listed[own_address] = page_name
            break
    while len(listed) > MOST_LISTED:
        oldest = next(iter(listed))
        await delist(store, workspace, name, listed[oldest])
        del listed[oldest]


async def _enlist_named(store: Store, group: Group, name: str, listed: dict[str, str]) -> None:
    """Give a conversation an entry in the page of the name that its client has for it."""
    page_name = _name_page_of_name(group)
    if page_name not in listed:
        entry = AddressEntry(name, 0, b"", "")
        await _add_entry(store, group.workspace, page_name, entry, is_last=True)
        listed[page_name] = page_name


async def delist(store: Store, workspace: str, name: str, page_name: str) -> bool:
    """Take a conversation's entry out of a page. Whether the page may go, since nobody needs it any more."""

    def remove(page: Page) -> Page:
        entries = tuple(each for each in page.entries if each.name != name)
        return msgspec.structs.replace(page, entries=entries)

    page = await _change_page(store, workspace, page_name, remove)
    return not page.entries and not page.goes_on


async def _add_entry(
    store: Store, workspace: str, page_name: str, entry: AddressEntry, *, is_last: bool
) -> bool:
    """Add an entry to a page. False if it is full, and the conversation has to go to the next one."""

    def add(page: Page) -> Page:
        if any(each.name == entry.name for each in page.entries):
            return page
        if not is_last and (page.goes_on or len(page.entries) >= ENTRIES):
            return msgspec.structs.replace(page, goes_on=True)
        return msgspec.structs.replace(page, entries=(*page.entries, entry)[-MOST_ENTRIES:])

    page = await _change_page(store, workspace, page_name, add)
    return any(each.name == entry.name for each in page.entries)


async def _change_page(store: Store, workspace: str, page_name: str, change: Callable[[Page], Page]) -> Page:
    """Replace a page by what a function makes of it, and return that."""
    where = Where(address_workspace(workspace), page_name)

    async def write() -> Page:
        source = (await store.read(where, last=0)).head.state
        page = _decode(source)
        changed = change(page)
        if changed != page:
            await store.append(where, [], was=source, state=msgspec.json.encode(changed))
        return changed

    return await retry_conflicts(write)


async def _read_page(store: Store, workspace: str, page_name: str) -> Page:
    page = await store.read(Where(address_workspace(workspace), page_name), last=0)
    return _decode(page.head.state)


def _decode(source: bytes) -> Page:
    if not source:
        return Page()
    try:
        return msgspec.json.decode(source, type=Page)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Damaged(f"a list of conversations cannot be read: {error}") from error
