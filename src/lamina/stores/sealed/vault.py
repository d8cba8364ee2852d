"""What opens a sealed store: its header, the ring of keys, and the names within that follow from them.

The header changes by compare-and-swap on its bytes. Each change appends one empty record to the reserved
conversation that it is stored in, and the header holds the number of changes. The vault reads no cards
(`cards`) and no records (`reader`).

Names are hashed with a key of the store, unless the store was made with plain names. A name with a NUL is
lamina's own (the index of workspaces), and always hashed.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import anyio
from anyio import to_thread
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, StoreError, Tampered, WrongKey
from lamina.stores.paging import retry_overtaken
from lamina.stores.port import HEADER, RESERVED, OwnName, Store, Where, Within
from lamina.stores.sealed.cipher import Cipher, derive_key, frame_fields, mac
from lamina.stores.sealed.documents import (
    Header,
    KeyLine,
    encode_document,
    is_header_authentic,
    key_line,
    new_header,
    parse_document,
    root_of,
    sign_header,
)
from lamina.stores.sealed.keys import Cost, Derivation, Key, Passphrase, derivation, derive
from lamina.stores.sealed.records import SealedPlace

Credential = Key | Passphrase
"""What a caller opens a store with."""

HASHED = "hashed"
PLAIN = "plain"
MOST_NAMES = 4096
"""Names that are remembered, so that they need not be hashed again."""


class Vault:
    """The keys around one store."""

    def __init__(
        self, store: Store, keys: Sequence[Credential], *, create: bool, names: str, cost: Cost
    ) -> None:
        if not keys:
            hint = "give a key; conversations are never stored plain"
            raise BadInput("there is none", place="keys", hint=hint)
        if names not in {HASHED, PLAIN}:
            raise BadInput(f"{names!r}", place="names", hint=f"give {HASHED!r} or {PLAIN!r}")
        self.store = store
        self._first_credential = keys[0]
        self._keys: list[Key] = []
        self._passphrases: list[Passphrase] = []
        for credential in keys:
            self._add_to_ring(credential)
        self._create = create
        self._names_mode = names
        self._cost = cost
        self._header: Header | None = None
        self._sealed_names: SealedNames | None = None
        self._root = b""
        self._once_key = b""
        self.ring: dict[str, Key] = {}
        self._derived_keys: dict[tuple[Passphrase, Derivation], Key] = {}
        self._lock = anyio.Lock()

    def _add_to_ring(self, credential: Credential) -> None:
        if isinstance(credential, Key):
            self._keys.append(credential)
        else:
            self._passphrases.append(credential)

    async def unlock(self, *, fresh: bool = False) -> Header:
        """The header, verified by a key of the ring. A new store gets one, if `create` allows that."""
        if self._header is not None and not fresh:
            return self._header
        async with self._lock:
            if fresh or self._header is None:  # another task may have unlocked it while this one waited
                self._header = await self._load_header()
            return self._header

    async def _load_header(self) -> Header:
        """Read the header, prove that its keys wrote it, and derive the keys of names from it.

        A new store gets its header here. Nothing is read from a store before that.
        """
        page = await self.store.read(HEADER, last=0)
        if page.head.is_empty:
            await self._make_header()
            page = await self.store.read(HEADER, last=0)
        header = parse_document(page.head.state, Header, page.head.count)
        root, ring = await self._open_header(header)
        if not is_header_authentic(header, root):
            raise Tampered("the header is not what was written")
        self._root = root
        self.ring = ring
        names_key = derive_key(root, "lamina/names/1", salt=header.store)
        self._sealed_names = SealedNames(names_key, header.store, header.names)
        self._once_key = derive_key(root, "lamina/once/1", salt=header.store)
        return header

    async def _make_header(self) -> None:
        """Write the header of a new store. If another process is first, its header is used."""
        if not self._create:
            hint = (
                "open it without a key if it is a plain store, give create=True if it is a new one; "
                "if it was sealed, restore it from a backup"
            )
            raise WrongKey("this store is not sealed, or its header is gone", hint=hint)
        key, how = await self._resolve_new(self._first_credential)
        header, root = new_header(key, names=self._names_mode, how=how)
        try:
            await self.store.append(HEADER, [b""], expect=0, state=sign_header(header, root))
        except Conflict:
            return  # another process was first: its header is read next

    async def _resolve_new(self, credential: Credential) -> tuple[Key, Derivation | None]:
        """The key that a new credential gives; for a passphrase, also how the key is derived from it."""
        if isinstance(credential, Key):
            return credential, None
        how = derivation(self._cost)
        return await self._derive(credential, how), how

    async def _derive(self, passphrase: Passphrase, how: Derivation) -> Key:
        """The key of a passphrase. Deriving it is slow on purpose, so it is remembered."""
        if (passphrase, how) not in self._derived_keys:
            self._derived_keys[passphrase, how] = await to_thread.run_sync(derive, passphrase, how)
        return self._derived_keys[passphrase, how]

    async def _open_header(self, header: Header) -> tuple[bytes, dict[str, Key]]:
        """The root secret, and those keys of the header that the credentials give, by their ids."""
        root = b""
        ring: dict[str, Key] = {}
        for line in header.keys:
            for key in await self._list_candidates(line):
                root_of_line = root_of(line, key, header.store)
                if root_of_line is not None:
                    root = root_of_line
                    ring[line.id] = key
        if not ring:
            ids = " or ".join(line.id for line in header.keys)
            raise WrongKey("none of the given keys opens this store", hint=f"give the key whose id is {ids}")
        return root, ring

    async def _list_candidates(self, line: KeyLine) -> list[Key]:
        """The keys to try on a line of the header: those of passphrases only if it is the line of one."""
        if line.derivation is None:
            return self._keys
        return [await self._derive(passphrase, line.derivation) for passphrase in self._passphrases]

    async def change_header(self, change: Callable[[Header], Header | None]) -> Header:
        """Change the header by compare-and-swap; None leaves it as it is."""

        async def change_once() -> Header:
            header = await self.unlock(fresh=True)
            new = change(header)
            if new is None:
                return header
            new = replace(new, change=header.change + 1)
            state = sign_header(new, self._root)
            was = encode_document(header)
            await self.store.append(HEADER, [b""], expect=header.change, was=was, state=state)
            return await self.unlock(fresh=True)

        return await retry_overtaken(change_once)

    async def add_credential(self, credential: Credential) -> tuple[str, Callable[[Header], Header | None]]:
        """The id of a key, and the change that adds it to the header. It joins the ring at once."""
        header = await self.unlock()
        key, how = await self._resolve_new(credential)
        self._add_to_ring(credential)
        line = key_line(key, header.store, self._root, how)

        def add_line(now: Header) -> Header | None:
            if now.has_key(key.id):
                return None
            return replace(now, keys=(*now.keys, line))

        return key.id, add_line

    def key(self, key_id: str, conversation: str = "") -> Key:
        """A key by its id, or WrongKey that names it."""
        if key_id not in self.ring:
            hint = "give it too, with the others"
            raise WrongKey(
                f"key {key_id!r} is needed and was not given", conversation=conversation, hint=hint
            )
        return self.ring[key_id]

    async def primary(self) -> Key:
        """The key that wraps new data keys, by the header of this moment."""
        header = await self.unlock(fresh=True)
        return self.key(header.primary)

    @property
    def names(self) -> SealedNames:
        """The names in the store within. They follow from the root secret, so `unlock` comes first."""
        if self._sealed_names is None:
            raise StoreError("the store is not unlocked")
        return self._sealed_names

    def place(self, where: Where) -> SealedPlace:
        """Where a conversation is, as everything in it is bound to: this store, workspace and name."""
        if self._header is None:
            raise StoreError("the store is not unlocked")
        return SealedPlace(self._header.store, where.workspace, where.conversation)

    def inner(self, where: Where) -> Where:
        """Where the records of a conversation are stored."""
        return self.names.inner(where)

    def hash_once(self, where: Where, *fields: str | bytes) -> bytes:
        """A hash of an idempotency key, or of its digest, that says nothing without the key of the store."""
        return mac(self._once_key, where.workspace, where.conversation, *fields)


class SealedNames:
    """The names of one store. `key` comes from its root secret."""

    def __init__(self, key: bytes, store: bytes, mode: str) -> None:
        self._key = key
        self._store = store
        self._mode = mode
        self._inner: dict[Where, Where] = {}

    def inner(self, where: Where) -> Where:
        """Where the records of a conversation are stored."""
        if where not in self._inner:
            if len(self._inner) > MOST_NAMES:
                self._inner.clear()
            workspace = self.inner_workspace(where.workspace)
            self._inner[where] = Where(workspace, self._inner_conversation(where))
        return self._inner[where]

    def inner_workspace(self, workspace: str) -> Within:
        """The name under which the inner store keeps a workspace: hashed, unless names stay plain."""
        if not self._is_plain(workspace):
            return Within(self._hashed_workspace(workspace))
        if workspace.startswith(RESERVED):  # the names of cards, which are never sealed themselves
            hint = f"names that begin with {RESERVED!r} are lamina's own"
            raise BadInput(f"{workspace!r}", place="workspace", hint=hint)
        return Within(workspace)

    def card_workspace(self, workspace: str) -> OwnName:
        return OwnName(f"{RESERVED}.{self._hashed_workspace(workspace)}")

    def card_place(self, where: Where) -> Where:
        return Where(self.card_workspace(where.workspace), self._inner_conversation(where))

    def seal(self, where: Where) -> bytes:
        """The name of a conversation, encrypted, as it is on its card."""
        return Cipher(self._key).seal(where.conversation.encode(), self._bound_to(where.workspace))

    def open(self, workspace: str, sealed_name: bytes) -> str:
        """The name of a conversation from its card; raises NotSealedHere if it is not what was written."""
        return Cipher(self._key).open(sealed_name, self._bound_to(workspace)).decode()

    def _is_plain(self, workspace: str) -> bool:
        return self._mode == PLAIN and "\0" not in workspace

    def _hashed_workspace(self, workspace: str) -> str:
        return _word(mac(self._key, "workspace", workspace))

    def _inner_conversation(self, where: Where) -> str:
        """The name under which the inner store keeps a conversation. Equal names differ by workspace."""
        if self._is_plain(where.workspace):
            return where.conversation
        return _word(mac(self._key, "conversation", where.workspace, where.conversation))

    def _bound_to(self, workspace: str) -> bytes:
        return frame_fields(self._store, workspace)


def _word(data: bytes) -> str:
    """Bytes as a name that every store accepts, whatever it does to letters."""
    return base64.b32encode(data[:25]).decode().lower()  # 25 bytes are 40 letters, and need no padding
